"""Decoding of recorded replies into records, against `orjson.loads` alone on the same payloads.

    make -C benchmarks/client
    python benchmarks/client/decode.py

The replies are taken off a socket: vLLM's completion stream as `paced_server` sends it, one
token a chunk and, with its gaps, one chunk a read. They are decoded again and again up to a
million chunks, as a load does it: HTTP framing, event stream, dialect, record. The two are timed in
turns, by the CPU time of this process, and the best round of each counts.
"""

import argparse
import gc
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from speedstudy.client.answer import read_reply, unframe
from speedstudy.client.decode import decode_exchange
from speedstudy.client.exchange import Exchange
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling
from speedstudy.workload import Prompt

HERE = Path(__file__).parent
DIALECT = DIALECTS["vllm"]


def record(server: Path, replies: int, tokens: int, gap_ms: float) -> list[Exchange]:
    """Take so many replies off the server, one after the other."""
    flags = ["--port", "0", "--ttft-ms", "1", "--gap-ms", str(gap_ms), "--tokens", str(tokens)]
    body = orjson.dumps(DIALECT.body("paced", list(range(128)), Sampling(max_tokens=tokens)))
    head = f"POST {DIALECT.route} HTTP/1.1\r\nHost: paced\r\nContent-Length: {len(body)}\r\n\r\n"
    exchanges = []
    with subprocess.Popen([server, *flags], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for job in range(replies):
                sent_s = time.perf_counter()
                connection.sendall(head.encode() + body)
                exchange = Exchange(
                    job=job, turn=0, scheduled_s=sent_s, ready_s=sent_s, sent_s=sent_s
                )
                while not (exchange.reads and exchange.reads[-1].endswith(b"0\r\n\r\n")):
                    exchange.reads.append(connection.recv(1 << 16))
                    exchange.read_s.append(time.perf_counter())
                exchange.ended_s = exchange.read_s[-1]
                exchanges.append(exchange)
        process.terminate()
    return exchanges


def seconds(work: Callable[[], object], times: int) -> float:
    gc.collect()
    start_s = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - start_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=1_000_000, help="in all rounds (1000000)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--replies", type=int, default=20, help="recorded, then repeated (20)")
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[64, 256], help="chunks of a reply (64 256)"
    )
    parser.add_argument("--gap-ms", type=float, default=0.5)
    parser.add_argument("--server", type=Path, default=HERE / "build" / "paced_server")
    arguments = parser.parse_args()

    for tokens in arguments.tokens:
        compare(arguments, tokens)


def compare(arguments: argparse.Namespace, tokens: int) -> None:
    """Record replies of one length and print both times and their ratio."""
    exchanges = record(arguments.server, arguments.replies, tokens, arguments.gap_ms)
    prompt_ids = tuple(range(128))
    prompt = Prompt(prompt_id="recorded", category=None, turn_token_ids=(prompt_ids,))
    payloads = []
    for exchange in exchanges:
        events, reply = read_reply(unframe(exchange), DIALECT)
        assert len(reply.token_ids or ()) == tokens
        payloads += [event.data for event in events if event.data != b"[DONE]"]

    def decode() -> None:
        for exchange in exchanges:
            turn = decode_exchange(exchange, prompt, prompt_ids, DIALECT, 0.0)
            assert turn.record.outcome == "ok"

    def load() -> None:
        for payload in payloads:
            orjson.loads(payload)

    chunks = arguments.replies * tokens
    times = max(1, arguments.chunks // chunks // arguments.rounds)
    ours_s, theirs_s = zip(
        *((seconds(decode, times), seconds(load, times)) for _ in range(arguments.rounds)),
        strict=True,
    )
    reads = sum(len(exchange.reads) for exchange in exchanges)
    ours_us = 1e6 * min(ours_s) / times / chunks
    theirs_us = 1e6 * min(theirs_s) / times / chunks
    print(
        f"{arguments.rounds * times * chunks} chunks in {reads / len(exchanges):.1f} reads a reply "
        f"of {tokens}, {sum(map(len, payloads)) / len(payloads):.0f} bytes of JSON each"
    )
    print(f"  decode: {ours_us:.2f} us a chunk, {1e6 / ours_us:,.0f} chunks/s")
    print(f"  orjson.loads alone: {theirs_us:.2f} us, {1e6 / theirs_us:,.0f} chunks/s")
    print(f"  ratio {ours_us / theirs_us:.2f}")


if __name__ == "__main__":
    main()
