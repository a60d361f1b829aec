"""What each engine's module says to its engine: lengths, trees, pretended acceptance, refusals."""

import sys
from pathlib import Path

import pytest
import yaml

from engine_launch import drafter, engine, launch
from speedstudy.engines import ENGINES
from speedstudy.engines.kind import Launch
from speedstudy.engines.process import running
from speedstudy.list_engines import tables, written_into
from speedstudy.schema.drafters import Drafter, Tree
from speedstudy.schema.engines import Engine

DOCS = Path(__file__).parents[1] / "docs"
TREE = Tree(top_k=4, nodes=10)


def value(one, flag):
    """The word after a flag; None if the flag is not there."""
    return one.argv[one.argv.index(flag) + 1] if flag in one.argv else None


def options(one):
    (text,) = one.files.values()
    return yaml.safe_load(text)


def speculation(method, **more):
    return options(launch(engine("trtllm"), drafter(method, **more)))["speculative_config"]


@pytest.mark.parametrize("kind", ["llamacpp", "sglang", "trtllm"])
def test_the_command_of_the_study_is_called_and_its_flags_come_last(kind):
    one = launch(
        engine(
            kind,
            command=["container", "run", "server"],
            environment={"A": "1"},
            extra_args=["--last", "9"],
        ),
        drafter("none"),
    )
    assert one.argv[:3] == ("container", "run", "server")
    assert one.argv[-2:] == ("--last", "9")
    assert one.environment["A"] == "1"
    assert value(one, "--port") == "8123"


def test_prefix_caches_are_off():
    assert "--disable-radix-cache" in launch(engine("sglang"), drafter("none")).argv
    llama = launch(engine("llamacpp"), drafter("none"))
    assert "--no-cache-prompt" in llama.argv
    assert value(llama, "--cache-ram") == "0"
    cache = options(launch(engine("trtllm"), drafter("none")))["kv_cache_config"]
    assert cache["enable_block_reuse"] is False


def test_each_request_in_flight_has_room_for_the_longest_sequence():
    sizes = {"concurrency": 8, "context_length": 10_000}
    sglang = launch(engine("sglang"), drafter("none"), **sizes)
    assert value(sglang, "--max-running-requests") == "8"
    assert value(sglang, "--context-length") == "10000"
    trtllm = launch(engine("trtllm"), drafter("none"), **sizes)
    assert value(trtllm, "--max_batch_size") == "8"
    assert value(trtllm, "--max_seq_len") == "10000"
    assert value(trtllm, "--max_num_tokens") == "10000"
    llama = launch(engine("llamacpp"), drafter("none"), **sizes)
    assert value(llama, "--parallel") == "8"
    assert value(llama, "--ctx-size") == "80000"  # all slots together


@pytest.mark.parametrize(
    ("method", "flags"),
    [
        ("none", {"--speculative-algorithm": None}),
        (
            "eagle3",
            {
                "--speculative-algorithm": "EAGLE3",
                "--speculative-draft-model-path": "/models/drafter",
                "--speculative-num-steps": "3",
                "--speculative-eagle-topk": "1",
                "--speculative-num-draft-tokens": "4",
            },
        ),
        ("draft_model", {"--speculative-algorithm": "STANDALONE"}),
        ("mtp", {"--speculative-algorithm": "NEXTN", "--speculative-draft-model-path": None}),
        (
            "dflash",
            {"--speculative-algorithm": "DFLASH", "--speculative-dflash-block-size": "4"},
        ),
        (
            "ngram",
            {
                "--speculative-algorithm": "NGRAM",
                "--speculative-num-draft-tokens": "4",
                "--speculative-ngram-max-bfs-breadth": "1",
                "--speculative-ngram-max-trie-depth": "6",
            },
        ),
    ],
)
def test_sglang_methods(method, flags):
    one = launch(engine("sglang"), drafter(method))
    assert {flag: value(one, flag) for flag in flags} == flags


def test_sglang_verifies_the_root_with_the_nodes_of_a_tree():
    one = launch(engine("sglang"), drafter("eagle3", tree=TREE))
    assert value(one, "--speculative-num-steps") == "3"
    assert value(one, "--speculative-eagle-topk") == "4"
    assert value(one, "--speculative-num-draft-tokens") == "11"


def test_sglang_is_spread_over_its_gpus():
    one = launch(engine("sglang", gpus=8, parallel={"tensor": 8, "expert": 8}), drafter("none"))
    assert (value(one, "--tp-size"), value(one, "--ep-size")) == ("8", "8")
    assert "--device" not in one.argv


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (
            "ngram",
            {"decoding_type": "NGram", "max_matching_ngram_size": 3, "is_public_pool": False},
        ),
        ("draft_model", {"decoding_type": "Draft_Target", "speculative_model": "/models/drafter"}),
        ("eagle3", {"decoding_type": "Eagle3", "speculative_model": "/models/drafter"}),
        ("mtp", {"decoding_type": "MTP"}),
        ("suffix", {"decoding_type": "SA"}),
        ("pard", {"decoding_type": "PARD", "speculative_model": "/models/drafter"}),
        ("dflash", {"decoding_type": "DFlash", "speculative_model": "/models/drafter"}),
    ],
)
def test_tensorrt_llm_methods(method, expected):
    assert speculation(method) == {"max_draft_len": 3, **expected}


def test_tensorrt_llm_without_a_drafter_says_nothing_of_speculation():
    assert "speculative_config" not in options(launch(engine("trtllm"), drafter("none")))


def test_tensorrt_llm_counts_the_nodes_of_a_tree_without_the_root():
    said = speculation("eagle3", tree=TREE)
    assert said["use_dynamic_tree"] is True
    assert (said["dynamic_tree_max_topK"], said["max_total_draft_tokens"]) == (4, 10)


def test_tensorrt_llm_file_lies_in_the_folder_of_the_start_and_is_named():
    one = launch(engine("trtllm"), drafter("none"))
    (path,) = one.files
    assert path.parent == Path("/run")
    assert value(one, "--extra_llm_api_options") == str(path)


@pytest.mark.parametrize(
    ("method", "flags"),
    [
        ("none", {"--spec-type": None}),
        (
            "ngram",
            {
                "--spec-type": "ngram-simple",
                "--spec-ngram-simple-size-n": "3",
                "--spec-ngram-simple-size-m": "3",
            },
        ),
        (
            "eagle3",
            {
                "--spec-type": "draft-eagle3",
                "--spec-draft-model": "/models/drafter/model.gguf",
                "--spec-draft-n-max": "3",
            },
        ),
        ("mtp", {"--spec-type": "draft-mtp", "--spec-draft-model": None}),
    ],
)
def test_llamacpp_methods(method, flags):
    one = launch(engine("llamacpp"), drafter(method))
    assert value(one, "--model") == "/models/target/model.gguf"
    assert {flag: value(one, flag) for flag in flags} == flags


def test_llamacpp_threads_wait_passively_unless_the_study_says_otherwise():
    assert launch(engine("llamacpp"), drafter("none")).environment == {"OMP_WAIT_POLICY": "passive"}
    own = engine("llamacpp", environment={"OMP_WAIT_POLICY": "active"})
    assert launch(own, drafter("none")).environment == {"OMP_WAIT_POLICY": "active"}


def test_pretended_acceptance_length_is_the_same_number_in_each_engines_words():
    """AL 2.5 is 1.5 accepted drafts a step; TensorRT-LLM counts those."""
    pretend = drafter("eagle3", synthetic_al=2.5)
    assert launch(engine("sglang"), pretend).environment["SGLANG_SIMULATE_ACC_LEN"] == "2.5"
    forced = "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"
    assert launch(engine("trtllm"), pretend).environment[forced] == "1.5"
    assert value(launch(engine("llamacpp"), pretend), "--spec-synth-len") == "2.5"


REFUSED = [
    ("sglang", {"kv_cache_gib": 2}, "none", {}, "set kv_cache_gib to null"),
    ("sglang", {"threads": 2}, "none", {}, "set threads to 0"),
    ("sglang", {"kv_cache_precision": "u8"}, "none", {}, "no kv_cache_precision u8"),
    ("sglang", {"gpus": 8, "parallel": {"tensor": 8, "expert": 4}}, "none", {}, "expert to 1 or 8"),
    ("sglang", {}, "dflash", {"tree": TREE}, "draws no tree with dflash"),
    ("sglang", {}, "ngram", {"min_ngram_size": 2}, "set min_ngram_size to null"),
    ("sglang", {}, "ngram", {"synthetic_al": 2}, "remove synthetic_al"),
    ("sglang", {}, "eagle3", {"tensor_parallel": 1}, "set tensor_parallel to null"),
    ("trtllm", {"gpus": 2, "parallel": {"data": 2}}, "none", {}, "set parallel.data to 1"),
    ("trtllm", {"kv_cache_precision": "f16"}, "none", {}, "no kv_cache_precision f16"),
    ("trtllm", {}, "ngram", {"tree": TREE}, "draws no tree with ngram"),
    ("trtllm", {}, "eagle3", {"tree": Tree(top_k=4, nodes=13)}, "has at most 12 nodes, not 13"),
    ("trtllm", {}, "suffix", {"synthetic_al": 2}, "remove synthetic_al"),
    ("llamacpp", {"precision": "f32"}, "none", {}, "set precision to auto"),
    ("llamacpp", {"kv_cache_gib": 1}, "none", {}, "set kv_cache_gib and gpu_memory_fraction"),
    ("llamacpp", {"gpus": 2, "parallel": {"data": 2}}, "none", {}, "spreads layers only"),
    ("llamacpp", {}, "eagle3", {"tree": TREE}, "set tree to null"),
    ("llamacpp", {}, "ngram", {"k": 2}, "set k to 3 or more, or max_ngram_size to 2"),
    ("llamacpp", {}, "ngram", {"min_ngram_size": 2}, "set min_ngram_size to null or 3"),
]


@pytest.mark.parametrize(("kind", "settings", "method", "more", "message"), REFUSED)
def test_what_an_engine_cannot_do_is_refused_with_the_mend(kind, settings, method, more, message):
    with pytest.raises(ValueError, match=message) as refused:
        launch(engine(kind, **settings), drafter(method, **more))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("eagle3", {"synthetic_al": 4.5}, "needs k of at least 4, it is 3"),
        ("eagle3", {"tree": Tree(top_k=2, nodes=2)}, "depth k=3 has at least 3 nodes, not 2"),
        ("ngram", {"min_ngram_size": 4}, "min_ngram_size 4 is above max_ngram_size 3"),
    ],
)
def test_a_drafter_that_contradicts_itself_is_refused(method, settings, message):
    with pytest.raises(ValueError, match=message):
        Drafter(**{**drafter(method).model_dump(), **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpus": 8}, "x parallel.data is 1 and gpus is 8"),
        ({"gpus": 4, "parallel": {"tensor": 4, "expert": 3}}, "3 does not divide the 4 GPUs"),
    ],
)
def test_an_engine_whose_gpus_do_not_add_up_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Engine(**{**engine("sglang").model_dump(), **settings})


def test_documentation_has_the_tables_of_the_code():
    page = (DOCS / "engines.md").read_text(encoding="utf-8")
    assert written_into(page, tables()) == page, (
        "run `speedstudy list-engines --write docs/engines.md`"
    )
    assert all(f"| {name} |" in page for name in ENGINES)


def test_a_page_without_a_place_for_the_tables_is_refused():
    with pytest.raises(ValueError, match="one pair of lines"):
        written_into("# Engines\n", tables())


def test_files_of_a_launch_are_there_when_the_engine_starts(tmp_path):
    path = tmp_path / "options.yaml"
    launched = Launch(
        argv=(sys.executable, "-c", f"print(open({str(path)!r}).read())"),
        files={path: "said: before the start"},
    )
    log = tmp_path / "engine.log"
    with running(launched, port=1, log=log, pid_file=tmp_path / "pid.json") as process:
        process.process.wait(20)
    assert "said: before the start" in log.read_text()
