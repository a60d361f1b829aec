"""The converter refuses what it can't hold, and what it converts computes the same numbers."""

import json
from argparse import Namespace

import pytest

from speedstudy.artifacts import fetch, sha256_of
from speedstudy.convert import gguf_to_hf, hf_to_openvino, run
from speedstudy.openvino_eagle3 import check_head
from speedstudy.openvino_export import check_convertible

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


HEAD = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "vocab_size": 64,
    "draft_vocab_size": 16,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000.0,
    "max_position_embeddings": 64,
    "eagle_aux_hidden_state_layer_ids": [2, 5, 7],
}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"norm_before_residual": True}, "norm_before_residual"),
        ({"num_hidden_layers": 2}, "one layer, not 2"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 5]}, r"\[2, 5\]"),
        ({"eagle_aux_hidden_state_layer_ids": [0, 2, 5]}, r"\[0, 2, 5\]"),
        ({"dtype": "float16"}, "not bfloat16"),
    ],
)
def test_a_head_that_cannot_be_converted_is_refused(tmp_path, changes, named):
    (tmp_path / "config.json").write_text(json.dumps({**HEAD, **changes}))
    with pytest.raises(ValueError, match=named):
        check_head(tmp_path)


@pytest.fixture
def head(tmp_path):
    """A folder with a head of random weights, and the weights."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    shapes = {
        "fc.weight": (32, 96),
        "norm.weight": (32,),
        "lm_head.weight": (16, 32),
        "midlayer.hidden_norm.weight": (32,),
        "midlayer.input_layernorm.weight": (32,),
        "midlayer.post_attention_layernorm.weight": (32,),
        "midlayer.self_attn.q_proj.weight": (32, 64),
        "midlayer.self_attn.k_proj.weight": (16, 64),
        "midlayer.self_attn.v_proj.weight": (16, 64),
        "midlayer.self_attn.o_proj.weight": (32, 32),
        "midlayer.mlp.gate_proj.weight": (48, 32),
        "midlayer.mlp.up_proj.weight": (48, 32),
        "midlayer.mlp.down_proj.weight": (32, 48),
    }
    weights = {name: torch.randn(shape).to(torch.bfloat16) for name, shape in shapes.items()}
    targets = torch.arange(1, 64, 4)  # draft token i is the target's token 1 + 4 i
    weights["d2t"] = targets - torch.arange(16)
    weights["t2d"] = torch.zeros(64, dtype=torch.bool)
    weights["t2d"][targets] = True
    folder = tmp_path / "head"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(HEAD))
    save_file(weights, folder / "model.safetensors")
    return folder, weights


def head_by_definition(weights, embedded, hidden):
    """Logits [length, draft vocabulary] of one sequence, written from the definition.

    Args:
        weights: The head's.
        embedded: The tokens' embeddings, [length, 32].
        hidden: The target's states before each, [length, 96].
    """
    import torch

    w = {name: tensor.float() for name, tensor in weights.items()}
    length = len(embedded)

    def norm(x, name):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w[name]

    angles = torch.arange(length)[:, None] / 1000.0 ** (torch.arange(4) / 4)[None, :]

    def rotated(x):  # [length, 8]: the first half of a vector is turned against the second
        a, b = x[:, :4], x[:, 4:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=1)

    layer = "midlayer."
    state = hidden @ w["fc.weight"].T
    x = torch.cat(
        [
            norm(embedded, layer + "input_layernorm.weight"),
            norm(state, layer + "hidden_norm.weight"),
        ],
        dim=1,
    )
    queries, keys, values = (x @ w[f"{layer}self_attn.{one}_proj.weight"].T for one in "qkv")
    mixed = []
    for query_head in range(4):
        key_head = query_head // 2
        q = rotated(queries[:, 8 * query_head :][:, :8])
        k = rotated(keys[:, 8 * key_head :][:, :8])
        v = values[:, 8 * key_head :][:, :8]
        scores = (q @ k.T / 8**0.5).masked_fill(torch.ones(length, length).triu(1).bool(), -1e30)
        mixed.append(scores.softmax(-1) @ v)
    state = state + torch.cat(mixed, dim=1) @ w[layer + "self_attn.o_proj.weight"].T
    x = norm(state, layer + "post_attention_layernorm.weight")
    gate = torch.nn.functional.silu(x @ w[layer + "mlp.gate_proj.weight"].T)
    state = state + (gate * (x @ w[layer + "mlp.up_proj.weight"].T)) @ (
        w[layer + "mlp.down_proj.weight"].T
    )
    return norm(state, "norm.weight") @ w["lm_head.weight"].T


@pytest.mark.filterwarnings("ignore")
def test_the_ir_of_a_head_computes_what_the_head_is_defined_to(head, tmp_path):
    """In two pieces, through the state; with the target's embedding put in, as GenAI does it."""
    import numpy as np
    import openvino as ov
    import openvino.opset13 as ops
    import torch

    folder, weights = head
    out = tmp_path / "ov"
    hf_to_openvino(folder, out)
    core = ov.Core()
    ir = core.read_model(out / "openvino_model.xml")
    assert ir.get_rt_info("eagle3_mode").astype(bool)
    # Inputs of layers 2, 5 and 7 are the outputs of 1, 4 and 6.
    assert ir.get_rt_info("hidden_layers_list").value == "1 4 6"
    (d2t,) = (
        result.input_value(0).get_node()
        for result in ir.get_results()
        if result.input_value(0).get_node().get_type_name() == "Constant"
    )
    assert d2t.get_friendly_name() == "d2t"
    assert d2t.data.tolist() == [1 + 3 * index for index in range(16)]

    embedding = torch.randn(64, 32)
    (gather,) = (
        node
        for node in ir.get_ops()
        if node.get_type_name() == "Gather" and "embed_tokens" in node.get_friendly_name()
    )
    assert list(gather.get_input_shape(0)) == [64, 32]
    gather.input(0).replace_source_output(ops.constant(embedding.numpy()).output(0))
    exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    request = core.compile_model(ir, "CPU", exact).create_infer_request()

    ids, hidden = torch.randint(0, 64, (2, 9)), torch.randn(2, 9, 96)
    pieces = []
    for first, last in ((0, 5), (5, 9)):
        result = request.infer(
            {
                "input_ids": ids[:, first:last].numpy(),
                "hidden_states": hidden[:, first:last].numpy(),
                "attention_mask": np.ones((2, last), dtype=np.int64),
                "position_ids": np.tile(np.arange(first, last), (2, 1)),
                "beam_idx": np.arange(2, dtype=np.int32),
            }
        )
        pieces.append(result["logits"].copy())
    expected = [head_by_definition(weights, embedding[ids[row]], hidden[row]) for row in range(2)]
    np.testing.assert_allclose(
        np.concatenate(pieces, axis=1), torch.stack(expected).numpy(), rtol=1e-3, atol=1e-3
    )


def test_a_head_with_other_tensors_is_refused_by_their_names(head, tmp_path):
    import torch
    from safetensors.torch import save_file

    folder, weights = head
    weights["embed_tokens.weight"] = torch.zeros(64, 32)
    del weights["fc.weight"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"embed_tokens\.weight, fc\.weight"):
        hf_to_openvino(folder, tmp_path / "ov")
    assert not (tmp_path / "ov").exists()


@pytest.mark.filterwarnings("ignore")
def test_a_fetched_head_is_converted_from_its_manifest(head, tmp_path):
    """And no manifest goes into the model's folder."""
    folder, _ = head
    files = {path.name: sha256_of(path) for path in folder.iterdir()}
    artifact = {"kind": "file", "licence": "x", "path": "head", "sha256": files}
    fetch(artifact, "head", tmp_path / "fetched", mirror=None, project_root=tmp_path)
    arguments = Namespace(
        config={"from": "hf", "to": "openvino"},
        source=[tmp_path / "fetched" / "manifest.json"],
        out=tmp_path / "ov" / "config.json",
    )
    run(arguments)
    made = sorted(path.name for path in (tmp_path / "ov").iterdir())
    assert made == ["config.json", "openvino_model.bin", "openvino_model.xml"]


def test_a_gguf_file_gets_the_folder_that_llamacpp_is_given(tmp_path):
    weights = tmp_path / "some.Q4.gguf"
    weights.write_bytes(b"GGUF")
    artifact = {"kind": "file", "licence": "MIT", "path": str(weights), "sha256": None}
    fetch(artifact, "some", tmp_path / "fetched", mirror=None, project_root=tmp_path)
    out = tmp_path / "model" / "config.json"
    run(
        Namespace(
            config={"from": "gguf", "to": "gguf"},
            source=[tmp_path / "fetched" / "manifest.json"],
            out=out,
        )
    )
    assert (out.parent / "model.gguf").read_bytes() == b"GGUF"
    assert out.is_file()


CONVERTER = """
import json, sys
from pathlib import Path

source, _, out, *more = sys.argv[1:]
if json.loads((Path(source) / "config.json").read_text())["model_type"] != "llama":
    sys.exit("no such model here")
Path(out).write_text(json.dumps({"source": source, "more": more}))
"""


def to_gguf(tmp_path, sources, model_type="llama"):
    """Convert `tmp_path/model` by a converter that writes what it was told; returns the folder."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": model_type}))
    arguments = {
        "config": {"from": "hf", "to": "gguf", "llamacpp": "b1"},
        "source": [tmp_path / source / "config.json" for source in sources],
        "engine_command": [str(tmp_path / "engine" / "llama-server")],
        "out": tmp_path / "made" / "config.json",
    }
    run(Namespace(**arguments))
    return tmp_path / "made"


@pytest.fixture
def converter(tmp_path):
    path = tmp_path / "engine" / "convert" / "convert_hf_to_gguf.py"
    path.parent.mkdir(parents=True)
    path.write_text(CONVERTER)


@pytest.mark.parametrize("sources", [["model"], ["model", "target"]])
def test_the_converter_beside_the_server_makes_a_gguf(tmp_path, converter, sources):
    """And of a head it gets the target too."""
    made = to_gguf(tmp_path, sources)
    told = json.loads((made / "model.gguf").read_text())
    target = ["--target-model-dir", str(tmp_path / "target")] if "target" in sources else []
    assert told == {"source": str(tmp_path / "model"), "more": target}
    assert sorted(path.name for path in made.iterdir()) == ["config.json", "model.gguf"]


def test_a_converter_that_fails_leaves_no_model_and_its_own_words(tmp_path, converter, capfd):
    with pytest.raises(ValueError, match=r"model: llama\.cpp's converter can't make a GGUF of it"):
        to_gguf(tmp_path, ["model"], model_type="mamba")
    assert "no such model here" in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["engine", "model"]


def test_a_llamacpp_without_its_converter_is_one_clear_line(tmp_path):
    with pytest.raises(ValueError, match="`make engine-llamacpp` leaves it there") as error:
        to_gguf(tmp_path, ["model"])
    assert str(error.value).startswith(str(tmp_path / "engine" / "convert"))
    assert len(str(error.value).splitlines()) == 1
