"""Compose a study from ``config/`` with Hydra and check it against the schema."""

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from speedstudy.artifacts import sha256_of
from speedstudy.schema.artifacts import FileArtifact
from speedstudy.schema.study import Study


def load_study(config_dir: Path, overrides: Sequence[str] = ()) -> Study:
    """Compose ``study.yaml`` with Hydra overrides and validate it.

    A source that is a local file without a sum gets the sum that the file has now, so that an edit
    of your own prompts is another study and never a stale result.

    Args:
        config_dir: The folder that holds ``study.yaml`` and the groups.
        overrides: Hydra's grammar, for example ``experiment=ci`` or ``drafters.ngram_k3.k=4``.

    Raises:
        ValueError: One line that names the key and what is wrong with it.
    """
    try:
        with initialize_config_dir(version_base=None, config_dir=str(config_dir.resolve())):
            composed = compose("study", overrides=list(overrides))
        values = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except MissingConfigException as error:
        raise ValueError(_missing_option(config_dir, overrides, error)) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(f"config: {_first_line(error)}") from error
    try:
        return _with_sums(Study.model_validate(values), config_dir.resolve().parent)
    except ValidationError as error:
        raise ValueError(_one_line(error)) from error


def _with_sums(study: Study, root: Path) -> Study:
    sources = {}
    for key, source in study.sources.items():
        artifact = source.artifact
        if isinstance(artifact, FileArtifact) and artifact.sha256 is None:
            path = root / artifact.path
            if path.is_file():
                artifact = artifact.model_copy(update={"sha256": sha256_of(path)})
        sources[key] = source.model_copy(update={"artifact": artifact})
    return study.model_copy(update={"sources": sources})


def _missing_option(
    config_dir: Path, overrides: Sequence[str], error: MissingConfigException
) -> str:
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        group, option = override.key_or_group, override.value()
        if (config_dir / group).is_dir() and not (config_dir / group / f"{option}.yaml").is_file():
            known = sorted(path.stem for path in (config_dir / group).glob("*.yaml"))
            return f"config: no {group} {option}; there are {', '.join(known)}"
    return f"config: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))


def _one_line(error: ValidationError) -> str:
    """Say the first fault in full and count the others."""
    faults = error.errors(include_url=False)
    first = faults[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        what = "unknown key"
    elif first["type"] == "missing":
        what = "missing"
    else:
        what = first["msg"].removeprefix("Value error, ")
        if first["type"] != "value_error":
            what += f" (got {first['input']!r})"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"config: {where + ': ' if where else ''}{what}{more}"
