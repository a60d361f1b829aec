"""The converter refuses what it can't hold, and what it converts computes the same numbers."""

import json

import pytest

from speedstudy.convert import check_convertible, gguf_to_hf, hf_to_openvino

CONFIG = {"model_type": "llama", "dtype": "bfloat16"}
TINY = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba'"),
        ({"sliding_window": 128}, "sliding-window"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "'longrope'"),
        ({"dtype": "float32"}, "not bfloat16"),
    ],
)
def test_a_model_that_cannot_be_converted_is_refused(tmp_path, changes, named):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    with pytest.raises(ValueError, match=named):
        check_convertible(tmp_path)


def test_inputs_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no such GGUF"):
        gguf_to_hf(tmp_path / "x.gguf", tmp_path / "out")
    with pytest.raises(ValueError, match=r"no config\.json"):
        hf_to_openvino(tmp_path, tmp_path / "out")


def test_a_folder_that_exists_is_not_overwritten(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(ValueError, match="exists already"):
        hf_to_openvino(tmp_path, tmp_path)


@pytest.mark.parametrize(
    "model_type",
    ["llama", *(pytest.param(name, marks=pytest.mark.engine) for name in ("qwen2", "qwen3"))],
)
@pytest.mark.filterwarnings("ignore")  # tracing warns of sizes that the mask made irrelevant
def test_the_ir_computes_what_torch_computes(tmp_path, model_type):
    """Logits of a prompt in two pieces, through the state, with weights bit by bit bfloat16."""
    import numpy as np
    import openvino as ov
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **TINY, head_dim=8)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    hf_dir, out = tmp_path / "hf", tmp_path / "ov"
    model.save_pretrained(hf_dir)
    hf_to_openvino(hf_dir, out)

    ids = torch.randint(0, TINY["vocab_size"], (2, 9))
    with torch.no_grad():
        expected = model.float().eval()(input_ids=ids).logits.numpy()
    exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    compiled = ov.Core().compile_model(out / "openvino_model.xml", "CPU", exact)
    state = compiled.create_infer_request()
    pieces = []
    for first, last in ((0, 5), (5, 9)):
        result = state.infer(
            {
                "input_ids": ids[:, first:last].numpy(),
                "attention_mask": np.ones((2, last), dtype=np.int64),
                "position_ids": np.tile(np.arange(first, last), (2, 1)),
                "beam_idx": np.arange(2, dtype=np.int32),
            }
        )
        pieces.append(result["logits"].copy())
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), expected, atol=1e-4)
    weights_bytes = 2 * sum(p.numel() for p in model.parameters())
    assert (out / "openvino_model.bin").stat().st_size < 1.1 * weights_bytes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "ov"]
