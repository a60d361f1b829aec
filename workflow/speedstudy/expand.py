"""From a study to its sessions and cells, and the data that they need; pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from speedstudy.data_plan import DataPlan, add_draft_model, add_model, add_workload
from speedstudy.engines import ENGINES
from speedstudy.engines.kind import LaunchRequest
from speedstudy.engines.session import SESSION_PARTS
from speedstudy.ids import measured, short_hash
from speedstudy.schema.drafters import Drafter
from speedstudy.schema.engines import Engine
from speedstudy.schema.loads import Load, Sampling
from speedstudy.schema.study import Study
from speedstudy.schema.targets import Target
from speedstudy.versions import MEASUREMENT_VERSION


@dataclass(frozen=True, kw_only=True)
class Job:
    """What cells and sessions have in common: what an engine is started with.

    Attributes:
        id: Readable, ending in a hash.
        cfg: What the rule's command is given.
        engine: Its engine, with what never changes a measurement and is not in ``cfg``.
        target: Its target, likewise.
        model: Id of the target in the engine's format.
        draft_model: Id of the drafter's weights in the engine's format, or None.
        workload: Id of the prompts; of a session, those of its first cell.
    """

    id: str
    cfg: Mapping[str, Any]
    engine: Engine
    target: Target
    model: str
    draft_model: str | None
    workload: str


@dataclass(frozen=True, kw_only=True)
class Cell(Job):
    """One measurement, by ``run_cell``: a session under one load.

    The hash of its id is over all that can change the result.

    Attributes:
        session: Id of its session (engine x target x drafter); its cells share engine settings.
    """

    session: str


class Session(Job):
    """What ``serve_engine`` starts one engine for when the cells of a session share it.

    The hash of its id is over engine, target and drafter; its ``cfg`` also has the most requests
    that any of its cells has in flight.
    """


@dataclass(frozen=True, kw_only=True)
class Impossible:
    """A combination of the matrix that cannot run, and why."""

    engine: str
    target: str
    drafter: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that a study needs: data nodes, cells and sessions in order, what cannot run."""

    data: DataPlan
    cells: Mapping[str, Cell]
    sessions: Mapping[str, Session]
    impossible: tuple[Impossible, ...]


def drafter_label(drafter: Drafter) -> str:
    """Return the drafter's name with its draft length, for example ``ngram-k3``."""
    return drafter.name if drafter.method == "none" else f"{drafter.name}-k{drafter.k}"


def expand(study: Study) -> Plan:
    """Expand a study into its plan.

    Cells come in the order engine, target, drafter, load, sampling, concurrency, repeat, each as
    the study lists them. A combination that cannot run is listed with its reason, never dropped.

    Raises:
        ValueError: Two options mean the same cell, or no cell can run.
    """
    data = DataPlan()
    cells: dict[str, Cell] = {}
    impossible: list[Impossible] = []
    for engine, target, drafter_key, drafter in _wanted_sessions(study):
        reason = _why_impossible(engine, target, drafter)
        if reason is not None:
            impossible.append(
                Impossible(
                    engine=engine.name,
                    target=target.name,
                    drafter=drafter_label(drafter),
                    reason=reason,
                )
            )
            continue
        for load in study.loads.values():
            if load.drafters is None or drafter_key in load.drafters:
                for cell in _cells(data, study, engine, target, drafter, load):
                    if cell.id in cells:
                        raise ValueError(
                            f"plan: {cell.id} is asked for twice: two options of the study mean "
                            "the same, remove one"
                        )
                    cells[cell.id] = cell
    if not cells:
        reasons = "; ".join(sorted({one.reason for one in impossible}))
        raise ValueError(f"plan: no cell can run: {reasons or 'no load names a drafter'}")
    return Plan(data=data, cells=cells, sessions=_sessions(cells), impossible=tuple(impossible))


def unpinned(plan: Plan) -> list[str]:
    """Return a line for each artifact whose commit is not known yet, with the mend.

    Such a plan can be looked at; no job of it may start.
    """
    return [
        f"{artifact['repo']}: no commit is known of it; look it up on the hub and set revision "
        "where the study names it"
        for artifact in (one.cfg for one in plan.data.artifacts.values())
        if artifact.get("revision", "") is None
    ]


def _sessions(cells: Mapping[str, Cell]) -> dict[str, Session]:
    """Return the sessions of cells, in the order of their first cells."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells.values():
        groups.setdefault(cell.session, []).append(cell)
    return {
        id_: Session(
            id=id_,
            cfg={
                **{name: group[0].cfg[name] for name in SESSION_PARTS},
                "max_concurrency": max(cell.cfg["load"]["concurrency"] for cell in group),
            },
            engine=group[0].engine,
            target=group[0].target,
            model=group[0].model,
            draft_model=group[0].draft_model,
            workload=group[0].workload,
        )
        for id_, group in groups.items()
    }


def _wanted_sessions(study: Study) -> Iterator[tuple[Engine, Target, str, Drafter]]:
    everything = product(study.engines, study.targets, study.drafters)
    listed = ((s.engine, s.target, drafter) for s in study.sessions or () for drafter in s.drafters)
    for engine, target, drafter in everything if study.sessions is None else listed:
        yield study.engines[engine], study.targets[target], drafter, study.drafters[drafter]


def _why_impossible(engine: Engine, target: Target, drafter: Drafter) -> str | None:
    if engine.kind not in ENGINES:
        return f"no engine module {engine.kind}; there are {', '.join(ENGINES)}"
    if drafter.method not in ENGINES[engine.kind].methods:
        return f"engine {engine.name} has no method {drafter.method}"
    if drafter.targets is not None and target.name not in drafter.targets:
        return f"drafter {drafter.name} was made for {', '.join(drafter.targets)}"
    anywhere = Path("anywhere")
    try:  # a launch is pure: what the engine cannot be told is known before anything starts
        ENGINES[engine.kind].launch(
            LaunchRequest(
                engine=engine,
                drafter=drafter,
                model=anywhere,
                draft_model=anywhere if drafter.artifact is not None else None,
                folder=anywhere,
                context_length=target.context_length,
                served_model_name=target.name,
                port=1,
                max_concurrency=1,
            )
        )
    except ValueError as error:
        return str(error)
    return None


def _cells(
    data: DataPlan, study: Study, engine: Engine, target: Target, drafter: Drafter, load: Load
) -> Iterator[Cell]:
    kind = ENGINES[engine.kind]
    model = add_model(data, target, kind.model_format, engine.version)
    draft_model = add_draft_model(data, drafter, target, kind.model_format, engine.version)
    workload = add_workload(data, study, load, target)
    session = {
        "engine": measured(engine),
        "target": {"name": target.name, "context_length": target.context_length},
        "drafter": measured(drafter),
    }
    models = [one.id if one else None for one in (model, draft_model)]
    hashed = short_hash({**session, "models": models, "command": engine.command})
    session_id = "--".join((engine.name, target.name, drafter_label(drafter), hashed))
    baseline_repeats = study.baseline_repeats if drafter.method == "none" else 0
    repeats = range(1, max(study.repeats, baseline_repeats) + 1)
    for sampling, concurrency, repeat in product(
        study.samplings.values(), load.concurrency, repeats
    ):
        cfg = {
            **session,
            "load": {
                **load.model_dump(mode="json", exclude={"drafters", "concurrency"}),
                "concurrency": concurrency,
            },
            "sampling": measured(sampling),
            "repeat": repeat,
        }
        digest = short_hash(
            {
                "version": MEASUREMENT_VERSION,
                "cfg": cfg,
                "model": model.id,
                "draft_model": draft_model.id if draft_model else None,
                "workload": workload.id,
            }
        )
        yield Cell(
            id=_readable(engine, target, drafter, load, sampling, concurrency, repeat, digest),
            session=session_id,
            cfg=cfg,
            engine=engine,
            target=target,
            model=model.id,
            draft_model=draft_model.id if draft_model else None,
            workload=workload.id,
        )


def _readable(
    engine: Engine,
    target: Target,
    drafter: Drafter,
    load: Load,
    sampling: Sampling,
    concurrency: int,
    repeat: int,
    digest: str,
) -> str:
    return "--".join(
        (
            engine.name,
            target.name,
            drafter_label(drafter),
            load.name,
            sampling.name,
            f"c{concurrency:04d}",
            f"r{repeat}",
            digest,
        )
    )
