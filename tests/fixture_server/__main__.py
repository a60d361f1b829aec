"""The fixture as a process: ``PYTHONPATH=tests python -m fixture_server --dialect sglang``.

Prints one JSON line with its name, URL and process id, then serves until it is killed.
"""

import argparse
import asyncio
import json
import os
from pathlib import Path

from fixture_server.script import Script
from fixture_server.server import SERVER_NAME, FixtureServer
from fixture_server.wire import WIRES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dialect", choices=sorted(WIRES), default="vllm")
    parser.add_argument(
        "--scripts",
        type=Path,
        metavar="FILE.json",
        help="list of objects with the fields of Script; request n gets the n-th, from the first "
        "again when they run out",
    )
    parser.add_argument("--port", type=int, default=0, help="0 (default) takes a free one")
    parser.add_argument("--hold", type=int, default=0, metavar="N")
    parser.add_argument("--dies-after", type=int, metavar="N")
    parser.add_argument("--counters", action="store_true", help="serve the dialect's counters")
    parser.add_argument("--accept-delay-s", type=float, default=0.0, metavar="S")
    arguments = parser.parse_args()
    scripts = [Script()]
    if arguments.scripts is not None:
        scripts = [Script(**fields) for fields in json.loads(arguments.scripts.read_text())]
    server = FixtureServer(
        script=lambda number, body: scripts[number % len(scripts)],
        dialect=arguments.dialect,
        hold=arguments.hold,
        dies_after=arguments.dies_after,
        exit_on_death=True,
        counters=arguments.counters,
        accept_delay_s=arguments.accept_delay_s,
        port=arguments.port,
    )

    def announce() -> None:
        print(json.dumps({"name": SERVER_NAME, "url": server.url, "pid": os.getpid()}), flush=True)

    asyncio.run(server.serve(announce))


if __name__ == "__main__":
    main()
