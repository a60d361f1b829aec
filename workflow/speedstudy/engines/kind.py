"""What an engine module declares about its engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from speedstudy.config import Drafter, Engine, Method

ModelFormat = Literal["hf", "openvino"]


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """What one engine process is started for.

    Attributes:
        engine: The engine's settings in the study.
        drafter: The drafter of the session.
        model: Folder of the target in the engine's format.
        draft_model: Folder of the drafter's weights in the engine's format, or None.
        served_model_name: The name that requests carry.
        port: Free TCP port on the loopback interface.
        max_concurrency: Most requests in flight that the engine must hold at once.
    """

    engine: Engine
    drafter: Drafter
    model: Path
    draft_model: Path | None
    served_model_name: str
    port: int
    max_concurrency: int


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A command line and the environment variables that it adds to ours."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EngineKind:
    """One engine.

    Attributes:
        name: As ``kind`` in ``config/engine``, and the name of its module.
        model_format: What ``convert`` must make of a target.
        dialect: Wire format, a name of ``speedstudy.dialects``.
        methods: Supported drafting methods, each with how the engine does it.
        version: Asks a running server, by its base URL, for its version; raises OSError or
            ValueError if it does not tell.
        launch: Turns a request into a command line; pure.
    """

    name: str
    model_format: ModelFormat
    dialect: str
    methods: Mapping[Method, str]
    version: Callable[[str], str]
    launch: Callable[[LaunchRequest], Launch]
