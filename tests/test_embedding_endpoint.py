"""An embedding endpoint: what is asked, what is kept, what is tried again and what is refused."""

import argparse
import http.server
import json
import threading
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speedstudy import embed, embedding_endpoint
from speedstudy.embedding_endpoint import request_embeddings
from speedstudy.expand import expand
from speedstudy.study import load_study
from speedstudy.tables import read_embeddings

CONFIG = Path(__file__).parents[1] / "config"


class Handler(http.server.BaseHTTPRequestHandler):
    """Embeds a text as (its length, its number of a's, 1), in reversed order."""

    asked: ClassVar[list] = []
    headers_seen: ClassVar[list] = []
    replies: ClassVar[list] = []  # (status, headers, body) to give first

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body))
        self.headers_seen.append(dict(self.headers))
        if self.replies:
            status, headers, text = self.replies.pop(0)
        else:
            rows = [
                {"index": index, "embedding": [len(text), text.count("a"), 1]}
                for index, text in enumerate(body["input"])
            ]
            status, headers, text = 200, {}, json.dumps({"data": rows[::-1]})
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *words):
        pass


@pytest.fixture
def config(monkeypatch):
    for shared in (Handler.asked, Handler.headers_seen, Handler.replies):
        shared.clear()
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield {
        "kind": "openai",
        "name": "tiny",
        "url": f"http://127.0.0.1:{server.server_port}/v1",
        "model": "tiny-1",
        "dimensions": 3,
        "shorten": False,
        "max_chars": 100,
        "batch_size": 2,
        "api_key_variable": None,
    }
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def waits(monkeypatch):
    seconds = []
    monkeypatch.setattr(embedding_endpoint.time, "sleep", seconds.append)
    return seconds


def inputs():
    return sorted(text for _, body in Handler.asked for text in body["input"])


def test_vectors_come_in_the_order_of_the_texts_and_have_unit_length(tmp_path, config):
    got = request_embeddings(["ab", "abba", "b"], config, tmp_path / "cache.sqlite")
    expected = np.array([[2, 1, 1], [4, 2, 1], [1, 0, 1]])
    assert np.allclose(got, expected / np.linalg.norm(expected, axis=1, keepdims=True))
    assert [len(body["input"]) for _, body in Handler.asked] == [2, 1]
    path, body = Handler.asked[0]
    assert path == "/v1/embeddings"
    assert (body["model"], body["encoding_format"], "dimensions" in body) == (
        "tiny-1",
        "float",
        False,
    )
    assert "Authorization" not in Handler.headers_seen[0]
    request_embeddings(["ab"], {**config, "shorten": True}, tmp_path / "other.sqlite")
    assert Handler.asked[-1][1]["dimensions"] == 3


def test_only_texts_that_were_never_answered_are_asked(tmp_path, config):
    cache = tmp_path / "cache.sqlite"
    first = request_embeddings(["a", "b", "a"], config, cache)
    assert inputs() == ["a", "b"]
    second = request_embeddings(["c", "a", "b"], config, cache)
    assert inputs() == ["a", "b", "c"]
    assert np.array_equal(second[1:], first[:2])
    request_embeddings(["a"], {**config, "model": "tiny-2"}, cache)
    assert inputs() == ["a", "a", "b", "c"]


def test_long_texts_are_cut(tmp_path, config):
    request_embeddings(["a" * 101, "a" * 100], config, tmp_path / "cache.sqlite")
    assert inputs() == ["a" * 100]


def test_answers_are_kept_when_a_later_request_fails(tmp_path, config, waits):
    cache = tmp_path / "cache.sqlite"
    good = {"data": [{"index": i, "embedding": [1, 2, 2]} for i in range(2)]}
    Handler.replies += [(200, {}, json.dumps(good)), (400, {}, '{"error": "too\\n long"}')]
    with pytest.raises(ValueError, match=r"tiny: .*400.*too\\n long.*What it answered so far"):
        request_embeddings(["a", "b", "c"], config, cache)
    assert waits == []  # a refusal for good is not tried again
    asked = len(inputs())
    request_embeddings(["a", "b", "c"], config, cache)
    assert len(inputs()) == asked + 1


def test_it_waits_longer_each_time_or_as_long_as_asked(tmp_path, config, waits):
    Handler.replies += [
        (500, {}, ""),
        (429, {"Retry-After": "7"}, ""),
        (503, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, ""),
        (200, {}, "<html>"),
    ]
    request_embeddings(["a"], config, tmp_path / "cache.sqlite")
    assert waits == [1, 7, 4, 8]
    Handler.replies += [(500, {}, "")] * 6
    with pytest.raises(ValueError, match="does not embed: HTTP Error 500"):
        request_embeddings(["b"], config, tmp_path / "cache.sqlite")
    assert waits[4:] == [1, 2, 4, 8, 16]


def test_nobody_there(tmp_path, config, waits):
    with pytest.raises(ValueError, match=r"http://127.0.0.1:9/embeddings does not embed"):
        request_embeddings(["a"], {**config, "url": "http://127.0.0.1:9"}, tmp_path / "c.sqlite")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"data": [{"index": 0, "embedding": [1, 2]}]}, "of 2 numbers and dimensions is 3"),
        ({"data": [{"index": 1, "embedding": [1, 2, 3]}]}, "not that of an embedding route"),
        ({"error": "no"}, "not that of an embedding route"),
        ({"data": [{"index": 0, "embedding": [0, 0, 0]}]}, "no direction"),
    ],
)
def test_other_answers_are_refused(tmp_path, config, answer, message):
    Handler.replies.append((200, {}, json.dumps(answer)))
    with pytest.raises(ValueError, match=message):
        request_embeddings(["a"], config, tmp_path / "cache.sqlite")


def test_the_key_comes_from_the_environment(tmp_path, config, monkeypatch):
    config = {**config, "api_key_variable": "TINY_KEY"}
    monkeypatch.delenv("TINY_KEY", raising=False)
    with pytest.raises(ValueError, match="set TINY_KEY to the key of"):
        request_embeddings(["a"], config, tmp_path / "cache.sqlite")
    monkeypatch.setenv("TINY_KEY", "secret")
    request_embeddings(["a"], config, tmp_path / "cache.sqlite")
    assert Handler.headers_seen[0]["Authorization"] == "Bearer secret"


def test_the_stage_records_ids_and_dimensions(tmp_path, config):
    rows = [{"question_id": name, "turns": [name, "a"]} for name in ("q2", "q1")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    parser = argparse.ArgumentParser()
    embed.add_arguments(parser)
    words = ["--config", json.dumps(config), "--candidates", str(tmp_path / "c.parquet")]
    for name in ("mine--0123456789.npz", "mine--abcdefabcd.npz"):
        # As the rule writes it; the second is the source after a change that left all its rows.
        out = ["--embedder", "--out", str(tmp_path / name)]
        assert embed.run(parser.parse_args(words + out)) == {"rows": 2, "dimensions": 3}
        assert list(read_embeddings([tmp_path / name])) == ["q1", "q2"]
        assert inputs() == ["q1\n\na", "q2\n\na"]


def test_a_study_with_an_endpoint_needs_no_artifact_of_it():
    study = load_study(CONFIG, ["experiment=demo", "embedder=text_embedding_3_large"])
    plan = expand(study)
    for one in plan.data.embeddings.values():
        assert one.cfg["model"] == "text-embedding-3-large"
        assert all(need in plan.data.candidates for need in one.needs)
