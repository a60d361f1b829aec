"""One set of weights in the three formats the engines want: GGUF -> HF folder -> OpenVINO IR.

An acceptance study compares engines on *the same model*. OpenVINO's own GGUF reader does not give
the model that transformers reads from the same file (its first greedy token agreed for 7 of 20
prompts), so a GGUF is dequantised once into an HF folder with bfloat16 weights, and that folder
is the model from then on: transformers and vLLM read it, and OpenVINO gets an IR that holds the
same bfloat16 numbers, bit by bit.

"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speedstudy.artifacts import read_manifest

OPENVINO_MODEL_TYPES = ("llama", "qwen2", "qwen3")
"""HF ``model_type`` values whose IR is held to the torch model by a test."""

ROPE_TYPES = ("default", "linear", "llama3")
"""Rotary embeddings that don't depend on the length of the sequence, so that a trace is exact."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``speedstudy convert``."""
    parser.add_argument(
        "--config",
        type=json.loads,
        required=True,
        help='JSON: {"from": "gguf" | "hf", "to": "hf" | "openvino"}',
    )
    parser.add_argument(
        "--source",
        type=Path,
        required=True,
        help="manifest.json of the target's artifact, or config.json of a converted model",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="config.json to write; the model goes beside it"
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy convert``; returns the folder.

    Raises:
        ValueError: There is no such conversion, or as the conversion itself.
    """
    source, out = arguments.source, arguments.out.parent
    match arguments.config:
        case {"from": "gguf", "to": "hf"}:
            gguf_to_hf(_only_file(source, ".gguf"), out)
        case {"from": "hf", "to": "hf"}:
            _link_folder(_only_file(source, "config.json").parent, out)
        case {"from": "hf", "to": "openvino"}:
            hf_to_openvino(source.parent, out)
        case other:
            raise ValueError(f"convert: no way from {other.get('from')} to {other.get('to')}")
    return {"folder": str(out)}


def _only_file(manifest: Path, ending: str) -> Path:
    found = [path for name, path in read_manifest(manifest).items() if name.endswith(ending)]
    if len(found) != 1:
        raise ValueError(f"{manifest}: {len(found)} files end in {ending}; the target needs one")
    return found[0]


def _link_folder(source: Path, out: Path) -> None:
    """Give a downloaded HF folder the name of a converted one, without a copy of its weights."""
    with _new_folder(out) as folder:
        for path in sorted(source.iterdir()):
            (folder / path.name).symlink_to(path.resolve())


def gguf_to_hf(gguf: Path, out: Path) -> Path:
    """Dequantise a GGUF file into an HF folder with tokenizer and chat template.

    The weights are what the GGUF's blocks decode to, rounded to bfloat16: that rounding is part
    of the model's definition here, and every engine gets it. Takes about 30 s for a vocabulary of
    49,152, most of it for the tokenizer's merges.

    Args:
        gguf: The file; transformers must know its architecture.
        out: The folder to make. It appears whole or not at all.

    Returns:
        ``out``.

    Raises:
        ValueError: ``gguf`` is not a file, transformers can't read it, or ``out`` exists.
    """
    if not gguf.is_file():
        raise ValueError(f"{gguf}: no such GGUF file")
    with _new_folder(out) as folder:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

        try:
            _progress(f"reading {gguf.name}")
            model = AutoModelForCausalLM.from_pretrained(
                gguf.parent,
                gguf_file=gguf.name,
                dtype=torch.bfloat16,
                # Packed weights, the default, can't be written by save_pretrained.
                quantization_config=GgufConfig(dequantize=True),
            )
            _progress("reading the tokenizer")
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        except (ValueError, KeyError, NotImplementedError) as error:
            raise ValueError(f"{gguf}: transformers can't read this GGUF file: {error}") from error
        _progress(f"writing {model.num_parameters():,} bfloat16 parameters")
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return out


def hf_to_openvino(hf_dir: Path, out: Path) -> Path:
    """Convert an HF folder into a stateful OpenVINO IR with the same bfloat16 weights.

    transformers' own module is traced by OpenVINO's converter, with two things handed in from
    outside: a key/value cache that just concatenates, and a ready-made 4D mask, since the mask
    code of transformers branches on sizes and would freeze the example's sizes into the graph.
    What comes out has the form that GenAI's paged attention looks for: per layer
    ReadValue -> Gather(beam_idx) -> Concat -> ScaledDotProductAttention -> Assign.

    The trace runs in float32 and its constants become bfloat16 afterwards. That loses nothing,
    because they were widened from bfloat16, and it is checked constant by constant: one that does
    not survive the round trip (the rotary frequencies) stays float32.

    Args:
        hf_dir: HF folder of a decoder-only model, weights in bfloat16.
        out: The folder to make: ``openvino_model.xml``/``.bin``, ``config.json``,
            ``generation_config.json`` and the HF tokenizer's files. The OpenVINO tokenizer is not
            converted: the study sends ids and reads ids. It appears whole or not at all.

    Returns:
        ``out``.

    Raises:
        ValueError: The architecture is not one of ``OPENVINO_MODEL_TYPES``, its attention or
            rotary embedding is of a kind that the trace can't hold, or ``out`` exists.
    """
    check_convertible(hf_dir)
    with _new_folder(out) as folder:
        import openvino as ov
        import torch
        from transformers import AutoModelForCausalLM

        _progress(f"reading {hf_dir}")
        model = AutoModelForCausalLM.from_pretrained(
            hf_dir, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        )
        _progress("tracing")
        ir = _trace(model.eval())
        _progress("writing bfloat16 constants")
        _constants_to_bfloat16(ir)
        ov.save_model(ir, folder / "openvino_model.xml", compress_to_fp16=False)
        for source in sorted(hf_dir.iterdir()):
            if source.is_file() and source.suffix in (".json", ".jinja"):
                shutil.copyfile(source, folder / source.name)
    return out


def check_convertible(hf_dir: Path) -> None:
    """Refuse a model that ``hf_to_openvino`` would convert wrongly or not at all.

    Raises:
        ValueError: One line that names the folder and what is in the way.
    """
    path = hf_dir / "config.json"
    if not path.is_file():
        raise ValueError(f"{hf_dir}: no config.json; not an HF model folder")
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    model_type = config.get("model_type")
    if model_type not in OPENVINO_MODEL_TYPES:
        raise ValueError(
            f"{hf_dir}: can't convert model_type {model_type!r} to OpenVINO; "
            f"one of {', '.join(OPENVINO_MODEL_TYPES)}"
        )
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        raise ValueError(f"{hf_dir}: can't convert sliding-window attention to OpenVINO")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type not in ROPE_TYPES:
        raise ValueError(
            f"{hf_dir}: can't convert rotary embedding {rope_type!r} to OpenVINO; "
            f"one of {', '.join(ROPE_TYPES)}"
        )
    if config.get("dtype", config.get("torch_dtype")) != "bfloat16":
        raise ValueError(f"{hf_dir}: weights are not bfloat16; save them as bfloat16 first")


def _trace(model: Any) -> Any:
    """Return the stateful ``ov.Model`` of a float32 causal LM of transformers.

    Inputs: ``input_ids``, ``attention_mask`` (over past and present), ``position_ids``, all
    int64 [batch, length], and ``beam_idx`` int32 [batch]. Output: ``logits``.
    """
    import openvino as ov
    import torch
    from openvino._offline_transformations import apply_make_stateful_transformation

    class Cache:
        """The key/value cache as the traced layers see it: concatenation, nothing else."""

        def __init__(self, layers: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
            self.layers = layers

        def update(
            self, keys: torch.Tensor, values: torch.Tensor, layer: int, **_: Any
        ) -> tuple[torch.Tensor, torch.Tensor]:
            past_keys, past_values = self.layers[layer]
            self.layers[layer] = (
                torch.cat([past_keys, keys], dim=2),
                torch.cat([past_values, values], dim=2),
            )
            return self.layers[layer]

    class Stateless(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        """(ids, mask, positions, beam_idx, past...) -> (logits, present...)."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor,
            position_ids: torch.Tensor,
            beam_idx: torch.Tensor,
            *past: torch.Tensor,
        ) -> tuple[torch.Tensor, ...]:
            chosen = [tensor.index_select(0, beam_idx) for tensor in past]
            cache = Cache(list(zip(chosen[0::2], chosen[1::2], strict=True)))
            total = attention_mask.shape[1]
            columns = torch.arange(total)
            rows = columns[total - input_ids.shape[1] :]
            causal = columns[None, :] <= rows[:, None]
            allowed = causal[None, None, :, :] & attention_mask.bool()[:, None, None, :]
            logits = self.model(
                input_ids=input_ids,
                attention_mask=allowed,
                position_ids=position_ids,
                cache=cache,
                use_cache=False,
            ).logits
            return (logits, *(tensor for layer in cache.layers for tensor in layer))

    config = model.config
    head_dim = getattr(config, "head_dim", None) or (
        config.hidden_size // config.num_attention_heads
    )
    past_names = [
        f"past_key_values.{layer}.{part}"
        for layer in range(config.num_hidden_layers)
        for part in ("key", "value")
    ]
    batch, past_length, length = 2, 3, 5  # distinct, so that no size is taken for another
    example = (
        torch.ones(batch, length, dtype=torch.int64),
        torch.ones(batch, past_length + length, dtype=torch.int64),
        torch.arange(past_length, past_length + length).expand(batch, length),
        torch.arange(batch, dtype=torch.int32),
        *(
            torch.zeros(batch, config.num_key_value_heads, past_length, head_dim)
            for _ in past_names
        ),
    )
    with torch.no_grad():
        ir = ov.convert_model(Stateless(), example_input=example)

    names = ["input_ids", "attention_mask", "position_ids", "beam_idx", *past_names]
    present_names = [name.replace("past_key_values", "present") for name in past_names]
    for port, name in zip(ir.inputs, names, strict=True):
        port.get_tensor().set_names({name})
    for port, name in zip(ir.outputs, ["logits", *present_names], strict=True):
        port.get_tensor().set_names({name})
    for port, name in zip(ir.inputs, names, strict=True):
        parameter = port.get_node()
        parameter.set_friendly_name(name)
        if name in past_names:
            shape = [-1, config.num_key_value_heads, -1, head_dim]
        else:
            shape = [-1] if name == "beam_idx" else [-1, -1]
        parameter.set_partial_shape(ov.PartialShape(shape))
    ir.validate_nodes_and_infer_types()
    apply_make_stateful_transformation(ir, dict(zip(past_names, present_names, strict=True)))
    _empty_state_per_batch(ir)
    return ir


def _empty_state_per_batch(ir: Any) -> None:
    """Let each state start as an empty cache with the batch size of ``input_ids``."""
    import openvino.opset13 as ops

    shape = ops.shape_of(ir.input("input_ids"), output_type="i64")
    batch = ops.gather(shape, ops.constant([0], dtype="int64"), ops.constant(0, dtype="int64"))
    for node in ir.get_ops():
        if node.get_type_name() != "ReadValue":
            continue
        _, heads, _, head_dim = node.get_output_partial_shape(0)
        rest = [
            ops.constant([size], dtype="int64")
            for size in (heads.get_length(), 0, head_dim.get_length())
        ]
        empty = ops.broadcast(
            ops.constant(0.0, dtype="float32"), ops.concat([batch, *rest], axis=0)
        )
        node.set_arguments([empty])
    ir.validate_nodes_and_infer_types()


def _constants_to_bfloat16(ir: Any) -> None:
    """Replace each float32 weight by a bfloat16 constant and a conversion back, where exact."""
    import openvino as ov
    import openvino.opset13 as ops
    import torch

    for node in ir.get_ops():
        if node.get_type_name() != "Constant" or node.get_element_type() != ov.Type.f32:
            continue
        values = torch.from_numpy(node.data.copy())
        narrow = values.to(torch.bfloat16)
        if values.numel() < 2 or not torch.equal(narrow.float(), values):
            continue
        bits = narrow.view(torch.int16).numpy()  # only borrowed by ov.Tensor
        tensor = ov.Tensor(bits, ov.Shape(list(values.shape)), ov.Type.bf16)
        widened = ops.convert(ops.constant(tensor, shared_memory=False), "f32")
        for target in node.output(0).get_target_inputs():
            target.replace_source_output(widened.output(0))


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``out`` that becomes ``out`` unless the body raises."""
    if (out / "config.json").exists():
        raise ValueError(f"{out} exists already; remove it to convert again")
    folder = out.with_name(f".{out.name}.partial")
    shutil.rmtree(folder, ignore_errors=True)  # of a conversion that was killed
    folder.mkdir(parents=True)
    try:
        yield folder
        shutil.rmtree(out, ignore_errors=True)  # without config.json it is not a model
        folder.rename(out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _progress(message: str) -> None:
    print(f"convert: {message}", file=sys.stderr, flush=True)
