"""A causal language model of transformers as an OpenVINO IR that GenAI's paged attention takes.

What comes out has, per layer, ReadValue -> Gather(beam_idx) -> Concat ->
ScaledDotProductAttention -> Assign: the form that GenAI looks for. The pieces that any traced
decoder needs are public; ``openvino_eagle3`` makes a draft model with them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MODEL_TYPES = ("llama", "qwen2", "qwen3")
"""HF ``model_type`` values whose IR is held to the torch model by a test."""

ROPE_TYPES = ("default", "linear", "llama3")
"""Rotary embeddings that don't depend on the length of the sequence, so that a trace is exact."""


def read_config(hf_dir: Path) -> dict[str, Any]:
    """Return an HF folder's ``config.json``.

    Raises:
        ValueError: There is none.
    """
    path = hf_dir / "config.json"
    if not path.is_file():
        raise ValueError(f"{hf_dir}: no config.json; not an HF model folder")
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return config


def check_convertible(hf_dir: Path) -> None:
    """Refuse a model that would be converted wrongly or not at all.

    Raises:
        ValueError: One line that names the folder and what is in the way.
    """
    config = read_config(hf_dir)
    model_type = config.get("model_type")
    if model_type not in MODEL_TYPES:
        raise ValueError(
            f"{hf_dir}: can't convert model_type {model_type!r} to OpenVINO; "
            f"one of {', '.join(MODEL_TYPES)}"
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


def export_causal_lm(hf_dir: Path) -> Any:
    """Return the stateful ``ov.Model`` of an HF folder, weights in bfloat16 as stored.

    transformers' own module is traced by OpenVINO's converter, with two things handed in from
    outside: a key/value cache that just concatenates, and a ready-made 4D mask, since the mask
    code of transformers branches on sizes and would freeze the example's sizes into the graph.

    The trace runs in float32 and its constants become bfloat16 afterwards. That loses nothing,
    because they were widened from bfloat16, and it is checked constant by constant: one that does
    not survive the round trip (the rotary frequencies) stays float32.

    Inputs: ``input_ids``, ``attention_mask`` (over past and present), ``position_ids``, all
    int64 [batch, length], and ``beam_idx`` int32 [batch]. Output: ``logits``.

    Args:
        hf_dir: A folder that ``check_convertible`` accepts.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        hf_dir, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
    ).eval()
    config = model.config
    head_dim = getattr(config, "head_dim", None) or (
        config.hidden_size // config.num_attention_heads
    )
    batch, past_length, length = EXAMPLE_SIZES
    example = (
        torch.ones(batch, length, dtype=torch.int64),
        torch.ones(batch, past_length + length, dtype=torch.int64),
        torch.arange(past_length, past_length + length).expand(batch, length),
        torch.arange(batch, dtype=torch.int32),
    )
    ir = trace_stateful(
        _with_outside_cache(model),
        inputs={
            "input_ids": (-1, -1),
            "attention_mask": (-1, -1),
            "position_ids": (-1, -1),
            "beam_idx": (-1,),
        },
        example=example,
        layers=config.num_hidden_layers,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
    )
    constants_to_bfloat16(ir)
    return ir


EXAMPLE_SIZES = (2, 3, 5)
"""Batch, past and present length of a trace's example; distinct, so that none is taken for another.
"""


def causal_mask(attention_mask: Any, length: int) -> Any:
    """Return which of past and present each of the last ``length`` positions may attend to.

    Args:
        attention_mask: Tensor [batch, past + length], 0 where there is padding.
        length: Positions of this pass.

    Returns:
        Boolean tensor [batch, 1, length, past + length].
    """
    import torch

    columns = torch.arange(attention_mask.shape[1])
    rows = columns[attention_mask.shape[1] - length :]
    causal = columns[None, :] <= rows[:, None]
    return causal[None, None, :, :] & attention_mask.bool()[:, None, None, :]


def _with_outside_cache(model: Any) -> Any:
    """Return a module (ids, mask, positions, beam_idx, past...) -> (logits, present...)."""
    import torch

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
            logits = self.model(
                input_ids=input_ids,
                attention_mask=causal_mask(attention_mask, input_ids.shape[1]),
                position_ids=position_ids,
                cache=cache,
                use_cache=False,
            ).logits
            return (logits, *(tensor for layer in cache.layers for tensor in layer))

    return Stateless()


def trace_stateful(
    module: Any,
    *,
    inputs: Mapping[str, Sequence[int]],
    example: tuple[Any, ...],
    layers: int,
    kv_heads: int,
    head_dim: int,
) -> Any:
    """Trace a module (inputs..., past...) -> (logits, present...) and keep its cache as state.

    Args:
        module: A torch module in evaluation mode, weights in float32.
        inputs: Shape of each input but the cache, -1 where it varies, in the order of the module.
        example: A tensor for each of them.
        layers: Attention layers, each with a key and a value in ``past``.
        kv_heads: Heads of keys and values.
        head_dim: Length of their vectors.

    Returns:
        ``ov.Model`` with the given inputs and the output ``logits``.
    """
    import openvino as ov
    import torch
    from openvino._offline_transformations import apply_make_stateful_transformation

    past_names = [
        f"past_key_values.{layer}.{part}" for layer in range(layers) for part in ("key", "value")
    ]
    batch, past_length, _ = EXAMPLE_SIZES
    past = (torch.zeros(batch, kv_heads, past_length, head_dim) for _ in past_names)
    with torch.no_grad():
        ir = ov.convert_model(module, example_input=(*example, *past))

    shapes = {**inputs, **dict.fromkeys(past_names, (-1, kv_heads, -1, head_dim))}
    present_names = [name.replace("past_key_values", "present") for name in past_names]
    for port, name in zip(ir.inputs, shapes, strict=True):
        port.get_tensor().set_names({name})
    for port, name in zip(ir.outputs, ["logits", *present_names], strict=True):
        port.get_tensor().set_names({name})
    for port, (name, shape) in zip(ir.inputs, shapes.items(), strict=True):
        parameter = port.get_node()
        parameter.set_friendly_name(name)
        parameter.set_partial_shape(ov.PartialShape(list(shape)))
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


def constants_to_bfloat16(ir: Any) -> None:
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
