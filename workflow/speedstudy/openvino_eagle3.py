"""An EAGLE-3 head as the draft model that OpenVINO GenAI's EAGLE-3 pipeline takes.

GenAI (2026.4.1) puts head and target together when it loads them, and finds the places by name and
shape; each is a reason for a line here:

* Runtime information ``eagle3_mode``, and ``hidden_layers_list``: the target's layers whose
  *outputs* are joined for the head. Heads count *inputs* of layers, as transformers'
  ``hidden_states`` does, so each number is one less here.
* The MatMul on the parameter ``hidden_states`` (the head's ``fc``) moves into the target, and the
  parameter then carries its result: its last dimension must be free.
* The output of the layer named ``midlayer`` becomes the hidden state of the next draft step.
* The table of the embedding is replaced by the target's. A head has none; what stands here for it
  is one zero, broadcast to the table's shape.
* A constant result named ``d2t`` holds, by draft token, the target's token minus the draft's.

The same head in vLLM drafts the same: norms, residual and position are those of its
``llama_eagle3``, and the state handed on is that before the last norm.
"""

from pathlib import Path
from typing import Any

from speedstudy.openvino_export import (
    EXAMPLE_SIZES,
    causal_mask,
    check_convertible,
    constants_to_bfloat16,
    read_config,
    trace_stateful,
)

ARCHITECTURE = "LlamaForCausalLMEagle3"

# Settings under which a head computes something else than is written here.
_FOREIGN = ("norm_before_residual", "norm_before_fc", "attention_bias", "mlp_bias")
_AUX_LAYERS = 3


def is_eagle3_head(hf_dir: Path) -> bool:
    """Return whether an HF folder holds an EAGLE-3 head.

    Raises:
        ValueError: It has no ``config.json``.
    """
    return ARCHITECTURE in read_config(hf_dir).get("architectures", ())


def check_head(hf_dir: Path) -> None:
    """Refuse a head that would be converted wrongly or not at all.

    Raises:
        ValueError: One line that names the folder and what is in the way.
    """
    check_convertible(hf_dir)
    config = read_config(hf_dir)
    for name in _FOREIGN:
        if config.get(name):
            raise ValueError(f"{hf_dir}: can't convert an EAGLE-3 head with {name} to OpenVINO")
    if config.get("num_hidden_layers", 1) != 1:
        raise ValueError(
            f"{hf_dir}: an EAGLE-3 head has one layer, not {config['num_hidden_layers']}"
        )
    layers = config.get("eagle_aux_hidden_state_layer_ids") or ()
    if len(layers) != _AUX_LAYERS or min(layers) < 1:
        raise ValueError(
            f"{hf_dir}: eagle_aux_hidden_state_layer_ids in config.json is {list(layers)}; "
            f"OpenVINO joins the inputs of {_AUX_LAYERS} layers of the target, not of its first"
        )


def export_eagle3(hf_dir: Path) -> Any:
    """Return the stateful ``ov.Model`` of a head, weights in bfloat16 as stored.

    Inputs: those of a causal language model (``openvino_export.export_causal_lm``) and
    ``hidden_states``, float32 [batch, length, 3 x hidden size]: row i belongs to the token *before*
    that of ``input_ids`` at i. Outputs: ``logits`` over the draft vocabulary, and the constant
    ``d2t`` if that is not the target's vocabulary.

    Args:
        hf_dir: A folder that ``check_head`` accepts.

    Raises:
        ValueError: ``model.safetensors`` is missing, or its tensors are not those of a head without
            embedding.
    """
    import torch
    from transformers import LlamaConfig

    fields = read_config(hf_dir)
    config = LlamaConfig.from_dict(fields)
    weights = _read_weights(hf_dir)
    d2t = weights.pop("d2t", None)
    weights.pop("t2d", None)  # the inverse of d2t
    module = _head(config, fields.get("draft_vocab_size", config.vocab_size))
    _load(module, weights, hf_dir)
    batch, past_length, length = EXAMPLE_SIZES
    example = (
        torch.ones(batch, length, dtype=torch.int64),
        torch.zeros(batch, length, _AUX_LAYERS * config.hidden_size),
        torch.ones(batch, past_length + length, dtype=torch.int64),
        torch.arange(past_length, past_length + length).expand(batch, length),
        torch.arange(batch, dtype=torch.int32),
    )
    ir = trace_stateful(
        module,
        inputs={
            "input_ids": (-1, -1),
            "hidden_states": (-1, -1, -1),
            "attention_mask": (-1, -1),
            "position_ids": (-1, -1),
            "beam_idx": (-1,),
        },
        example=example,
        layers=1,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
    )
    constants_to_bfloat16(ir)
    _put_placeholder(ir)
    if d2t is not None:
        _add_d2t(ir, d2t)
    ir.set_rt_info("True", "eagle3_mode")
    aux = [layer - 1 for layer in fields["eagle_aux_hidden_state_layer_ids"]]
    ir.set_rt_info(aux, "hidden_layers_list")
    return ir


def _head(config: Any, draft_vocabulary: int) -> Any:
    """Return an untrained head, the inputs of ``export_eagle3`` -> (logits, present...)."""
    import torch
    from torch import Tensor, nn
    from transformers.models.llama.modeling_llama import (
        LlamaMLP,
        LlamaRMSNorm,
        LlamaRotaryEmbedding,
        apply_rotary_pos_emb,
        repeat_kv,
    )

    hidden, head_dim = config.hidden_size, config.head_dim
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads

    def linear(inputs: int, outputs: int) -> Any:
        return nn.Linear(inputs, outputs, bias=False)

    def norm() -> Any:
        return LlamaRMSNorm(hidden, config.rms_norm_eps)

    class Attention(nn.Module):  # type: ignore[misc]  # torch is untyped here
        """Attention whose input is twice as wide: the token's embedding beside the state."""

        def __init__(self) -> None:
            super().__init__()
            self.q_proj = linear(2 * hidden, heads * head_dim)
            self.k_proj = linear(2 * hidden, kv_heads * head_dim)
            self.v_proj = linear(2 * hidden, kv_heads * head_dim)
            self.o_proj = linear(heads * head_dim, hidden)

        def forward(
            self,
            x: Tensor,
            rotary: tuple[Tensor, Tensor],
            mask: Tensor,
            past: tuple[Tensor, Tensor],
        ) -> tuple[Tensor, Tensor, Tensor]:
            batch, length, _ = x.shape
            queries, keys, values = (
                projection(x).view(batch, length, -1, head_dim).transpose(1, 2)
                for projection in (self.q_proj, self.k_proj, self.v_proj)
            )
            queries, keys = apply_rotary_pos_emb(queries, keys, *rotary)
            keys, values = torch.cat([past[0], keys], dim=2), torch.cat([past[1], values], dim=2)
            mixed = nn.functional.scaled_dot_product_attention(
                queries,
                repeat_kv(keys, heads // kv_heads),
                repeat_kv(values, heads // kv_heads),
                attn_mask=mask,
            )
            return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1)), keys, values

    class Layer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.input_layernorm, self.hidden_norm = norm(), norm()
            self.self_attn = Attention()
            self.post_attention_layernorm = norm()
            self.mlp = LlamaMLP(config)

        def forward(
            self,
            embedding: Tensor,
            state: Tensor,
            rotary: tuple[Tensor, Tensor],
            mask: Tensor,
            past: tuple[Tensor, Tensor],
        ) -> tuple[Tensor, Tensor, Tensor]:
            x = torch.cat([self.input_layernorm(embedding), self.hidden_norm(state)], dim=-1)
            mixed, keys, values = self.self_attn(x, rotary, mask, past)
            state = state + mixed
            return state + self.mlp(self.post_attention_layernorm(state)), keys, values

    class Head(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
            self.fc = linear(_AUX_LAYERS * hidden, hidden)
            self.midlayer = Layer()
            self.norm = norm()
            self.lm_head = linear(hidden, draft_vocabulary)
            self.rotary = LlamaRotaryEmbedding(config)

        def forward(
            self,
            input_ids: Tensor,
            hidden_states: Tensor,
            attention_mask: Tensor,
            position_ids: Tensor,
            beam_idx: Tensor,
            keys: Tensor,
            values: Tensor,
        ) -> tuple[Tensor, Tensor, Tensor]:
            state = self.fc(hidden_states)
            state, keys, values = self.midlayer(
                self.embed_tokens(input_ids),
                state,
                self.rotary(state, position_ids),
                causal_mask(attention_mask, input_ids.shape[1]),
                (keys.index_select(0, beam_idx), values.index_select(0, beam_idx)),
            )
            return self.lm_head(self.norm(state)), keys, values

    return Head().eval()


def _read_weights(hf_dir: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    path = hf_dir / "model.safetensors"
    if not path.is_file():
        raise ValueError(f"{path}: no such file; the weights of a head are expected there")
    weights: dict[str, Any] = load_file(path)
    return weights


def _load(module: Any, weights: dict[str, Any], hf_dir: Path) -> None:
    """Fill the head, all but its embedding.

    Raises:
        ValueError: A tensor is missing, is one too many or has another shape.
    """
    wanted = {
        name: tensor.shape
        for name, tensor in module.state_dict().items()
        if name != "embed_tokens.weight"
    }
    found = {name: tensor.shape for name, tensor in weights.items()}
    odd = sorted(name for name in wanted.keys() | found if wanted.get(name) != found.get(name))
    if odd:
        raise ValueError(
            f"{hf_dir}: can't convert this EAGLE-3 head to OpenVINO: unexpected, missing or of "
            f"another shape: {', '.join(odd)}"
        )
    module.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)


def _put_placeholder(ir: Any) -> None:
    """Replace the table of the embedding by one zero in its shape."""
    import openvino.opset13 as ops

    (gather,) = (
        node
        for node in ir.get_ops()
        if node.get_type_name() == "Gather" and "embed_tokens" in node.get_friendly_name()
    )
    table = gather.input_value(0)
    shape = list(table.get_shape())
    zero = ops.constant(0.0, dtype="float32")
    gather.input(0).replace_source_output(ops.broadcast(zero, ops.constant(shape)).output(0))


def _add_d2t(ir: Any, d2t: Any) -> None:
    import openvino.opset13 as ops

    constant = ops.constant(d2t.numpy(), dtype="int64")
    constant.set_friendly_name("d2t")
    result = ops.result(constant)
    result.output(0).get_tensor().set_names({"d2t"})
    ir.add_results([result])
