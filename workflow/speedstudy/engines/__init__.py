"""The engines that a study can start, by name.

An engine is one module with one ``EngineKind``: what it supports, the command line that starts it
and the dialect that it speaks.
"""

from collections.abc import Mapping

from speedstudy.engines.kind import EngineKind
from speedstudy.engines.llamacpp import LLAMACPP
from speedstudy.engines.openvino import OPENVINO
from speedstudy.engines.sglang import SGLANG
from speedstudy.engines.trtllm import TRTLLM
from speedstudy.engines.vllm import VLLM

ENGINES: Mapping[str, EngineKind] = {
    kind.name: kind for kind in (LLAMACPP, OPENVINO, SGLANG, TRTLLM, VLLM)
}
