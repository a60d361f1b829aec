"""Artifacts: mirrors, sums, members of wheels, and errors that say what was tried."""

import argparse
import hashlib
import http.server
import json
import os
import threading
import urllib.error
import zipfile

import pytest

from speedstudy import artifacts
from speedstudy import fetch as stage
from speedstudy.artifacts import fetch, read_manifest

REVISION = "a" * 40


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def make_wheel(folder):
    """A wheel that pip accepts, with two data files."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / "tiny_data-1.0-py3-none-any.whl"
    info = "tiny_data-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_data/rows/a.jsonl", "first\n")
        archive.writestr("tiny_data/rows/b.jsonl", "second\n")
        archive.writestr("tiny_data/__init__.py", "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-data\nVersion: 1.0")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def pypi(wheel, members=("tiny_data/rows/*.jsonl",)):
    return {
        "kind": "pypi",
        "licence": "MIT",
        "package": "tiny-data",
        "version": "1.0",
        "sha256": sha256(wheel.read_bytes()),
        "members": list(members),
    }


@pytest.fixture
def no_index(monkeypatch, tmp_path):
    """Pip finds only what lies in the returned folder, and no user's pip.conf is read."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return links


def test_pip_gets_the_wheel_and_only_the_members_stay(tmp_path, no_index):
    wheel = make_wheel(no_index)
    out = tmp_path / "out"
    manifest = fetch(pypi(wheel), "tiny", out, mirror=None, project_root=tmp_path)
    assert manifest["files"]["tiny_data/rows/a.jsonl"] == {
        "sha256": sha256(b"first\n"),
        "bytes": 6,
        "origin": "pypi:tiny-data==1.0",
    }
    left = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())
    assert left == ["manifest.json", "tiny_data/rows/a.jsonl", "tiny_data/rows/b.jsonl"]
    files = read_manifest(out / "manifest.json")
    assert files["tiny_data/rows/b.jsonl"].read_text() == "second\n"
    again = fetch(pypi(wheel), "tiny", out, mirror=None, project_root=tmp_path)
    assert again == manifest


def test_offline_error_names_artifact_licence_and_places(tmp_path, no_index):
    wanted = pypi(make_wheel(tmp_path / "elsewhere"))
    with pytest.raises(ValueError, match="cannot be had") as error:
        fetch(wanted, "tiny", tmp_path / "out", mirror=tmp_path / "mirror", project_root=tmp_path)
    message = str(error.value)
    for part in ("artifact tiny", "licence MIT", "pip download tiny-data==1.0", "mirror/pypi/tiny"):
        assert part in message
    assert "\n" not in message
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_mirrored_wheel_is_taken_before_pip_and_stays_whole_without_members(tmp_path, no_index):
    wheel = make_wheel(tmp_path / "mirror" / "pypi" / "tiny-data" / "1.0")
    out = tmp_path / "out"
    fetch(pypi(wheel, ()), "tiny", out, mirror=tmp_path / "mirror", project_root=tmp_path)
    assert (out / wheel.name).read_bytes() == wheel.read_bytes()


def test_another_sum_and_a_missing_member_are_refused(tmp_path, no_index):
    wheel = make_wheel(no_index)
    other = {**pypi(wheel), "sha256": "0" * 64}
    with pytest.raises(ValueError, match=r"artifact tiny: tiny_data-1.0.* but 0{64} is pinned"):
        fetch(other, "tiny", tmp_path / "out", mirror=None, project_root=tmp_path)
    with pytest.raises(ValueError, match=r"no member tiny_data/none\*"):
        fetch(
            pypi(wheel, ("tiny_data/none*",)),
            "tiny",
            tmp_path / "out",
            mirror=None,
            project_root=tmp_path,
        )
    assert not (tmp_path / "out" / "manifest.json").exists()


# ---- repositories


def repo(kind="github", data=b"rows\n", **more):
    return {
        "kind": kind,
        "licence": "Apache-2.0",
        "repo": "owner/name",
        "revision": REVISION,
        "files": ["data/q.jsonl"],
        "sha256": {"data/q.jsonl": sha256(data)},
        **more,
    }


@pytest.mark.parametrize("kind", ["github", "hub"])
def test_mirrored_repository(tmp_path, kind):
    copy = tmp_path / "mirror" / "owner" / "name" / REVISION / "data" / "q.jsonl"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(b"rows\n")
    wanted = repo(kind, repo_type="dataset")
    out = tmp_path / "out"
    fetch(wanted, "rows", out, mirror=tmp_path / "mirror", project_root=tmp_path)
    assert (out / "data" / "q.jsonl").read_bytes() == b"rows\n"
    # Once here with the right sum, neither mirror nor network is asked.
    fetch(wanted, "rows", out, mirror=None, project_root=tmp_path)
    copy.write_bytes(b"changed\n")
    (out / "data" / "q.jsonl").unlink()
    with pytest.raises(ValueError, match="is pinned"):
        fetch(wanted, "rows", out, mirror=tmp_path / "mirror", project_root=tmp_path)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ten bytes; the first answer breaks off after four."""

    data = b"0123456789"
    ranges: list[str | None] = []  # noqa: RUF012

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.ranges.append(wanted)
        start = int(wanted[6:-1]) if wanted else 0
        body = self.data[start:]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:4] if len(self.ranges) == 1 else body)

    def log_message(self, *words):
        pass


@pytest.fixture
def server(monkeypatch):
    Handler.ranges.clear()
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(artifacts, "GITHUB_RAW", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    yield
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_broken_download_is_continued(tmp_path, server):
    wanted = repo(data=Handler.data)
    fetch(wanted, "rows", tmp_path / "out", mirror=None, project_root=tmp_path)
    assert (tmp_path / "out" / "data" / "q.jsonl").read_bytes() == Handler.data
    assert Handler.ranges == [None, "bytes=4-"]


def test_a_damaged_download_does_not_stay(tmp_path, server):
    with pytest.raises(ValueError, match="is pinned"):
        fetch(repo(), "rows", tmp_path / "out", mirror=None, project_root=tmp_path)
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file()] == []


def test_github_offline_says_so(tmp_path, monkeypatch):
    def offline(*_, **__):
        raise urllib.error.URLError("no route")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(ValueError, match=r"rows \(licence Apache-2.0\): data/q.jsonl.*no route"):
        fetch(repo(), "rows", tmp_path / "out", mirror=None, project_root=tmp_path)


def test_hub_offline_says_so(tmp_path, monkeypatch):
    def offline(*_, **__):
        raise OSError("offline mode is enabled")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", offline)
    with pytest.raises(ValueError, match=r"hub dataset owner/name@a+: offline mode"):
        fetch(
            repo("hub", repo_type="dataset"),
            "rows",
            tmp_path / "out",
            mirror=None,
            project_root=tmp_path,
        )


# ---- files and the command


def test_command_copies_a_local_file(tmp_path, monkeypatch):
    monkeypatch.delenv("SPEEDSTUDY_MIRROR", raising=False)
    (tmp_path / "own.jsonl").write_bytes(b"mine\n")
    config = {"kind": "file", "licence": "mine", "path": "own.jsonl", "sha256": None}
    parser = argparse.ArgumentParser()
    stage.add_arguments(parser)
    words = ["--config", json.dumps(config), "--name", "own", "--root", str(tmp_path)]
    manifest = tmp_path / "out" / "manifest.json"
    stage.run(parser.parse_args([*words, "--out", str(manifest)]))
    assert read_manifest(manifest)["own.jsonl"].read_bytes() == b"mine\n"
    (tmp_path / "out" / "own.jsonl").write_bytes(b"cut")
    with pytest.raises(ValueError, match="gone or changed"):
        read_manifest(manifest)
    (tmp_path / "own.jsonl").unlink()
    with pytest.raises(ValueError, match=r"own.jsonl: not there"):
        stage.run(parser.parse_args([*words, "--out", str(manifest)]))


def test_a_local_folder_gives_the_files_that_have_a_sum(tmp_path):
    head = tmp_path / "models" / "head"
    head.mkdir(parents=True)
    contents = {"config.json": b"{}", "model.safetensors": b"weights", "notes.txt": b"unasked"}
    for name, data in contents.items():
        (head / name).write_bytes(data)
    sums = {name: sha256(contents[name]) for name in ("config.json", "model.safetensors")}
    artifact = {"kind": "file", "licence": "mine", "path": "models/head", "sha256": sums}
    where = {"mirror": None, "project_root": tmp_path}
    manifest = fetch(artifact, "head", tmp_path / "out", **where)
    assert {name: one["origin"] for name, one in manifest["files"].items()} == {
        "config.json": "models/head/config.json",
        "model.safetensors": "models/head/model.safetensors",
    }
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == b"weights"
    (head / "model.safetensors").write_bytes(b"Weights")
    with pytest.raises(ValueError, match=r"head/model.safetensors has sha256 .* is pinned"):
        fetch(artifact, "head", tmp_path / "again", **where)
    (head / "config.json").unlink()
    with pytest.raises(ValueError, match=r"config.json: not there"):
        fetch(artifact, "head", tmp_path / "again", **where)
