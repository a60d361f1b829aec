"""What an engine module declares about its engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from speedstudy.schema.drafters import Drafter, Method
from speedstudy.schema.engines import Engine

ModelFormat = Literal["hf", "openvino", "gguf"]


@dataclass(frozen=True, kw_only=True)
class Support:
    """That an engine has a drafting method, for the table in ``docs/engines.md``.

    Attributes:
        since: First version of the engine known to have it, as far as somebody looked.
        how: The engine's own words for it.
        tree: Whether drafts may branch (``Drafter.tree``).
        synthetic: The engine's own words for a pretended acceptance length, or None.
    """

    since: str
    how: str
    tree: bool = False
    synthetic: str | None = None


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """What one engine process is started for.

    Attributes:
        engine: The engine's settings in the study.
        drafter: The drafter of the session.
        model: Folder of the target in the engine's format.
        draft_model: Folder of the drafter's weights in the engine's format, or None.
        folder: Folder that exists when the engine starts, for ``Launch.files``.
        context_length: Longest sequence that the engine must hold, in tokens.
        served_model_name: The name that requests carry.
        port: Free TCP port on the loopback interface.
        max_concurrency: Most requests in flight that the engine must hold at once.
        known_flags: Those optional flags that the installed server has (``EngineKind.probe``).
    """

    engine: Engine
    drafter: Drafter
    model: Path
    draft_model: Path | None
    folder: Path
    context_length: int
    served_model_name: str
    port: int
    max_concurrency: int
    known_flags: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How to start an engine.

    Attributes:
        argv: Command line.
        environment: Variables added to ours.
        files: Texts of files that the command line names, by path, to be written first.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EngineKind:
    """One engine.

    Attributes:
        name: As ``kind`` in ``config/engine``, and the name of its module.
        model_format: What ``convert`` must make of a target.
        dialect: Wire format, a name of ``speedstudy.dialects``.
        methods: The drafting methods that it has.
        acceptance: Where what was accepted is read, for ``docs/engines.md``.
        version: Asks a running server, by its base URL, for its version; raises OSError or
            ValueError if it does not tell.
        launch: Turns a request into a command line; pure. Raises ValueError for what the engine
            cannot do (the plan then lists the combination as impossible, with that reason).
        probe: Asks the installed server which of its optional flags it has, before a start with
            this drafter; None: none is optional. Raises EngineError if there is no server.
    """

    name: str
    model_format: ModelFormat
    dialect: str
    methods: Mapping[Method, Support]
    acceptance: str
    version: Callable[[str], str]
    launch: Callable[[LaunchRequest], Launch]
    probe: Callable[[Engine, Drafter], frozenset[str]] | None = None
