"""The console command ``speedstudy``: parse, call one function, exit.

Every subcommand is a module of the same name with ``add_arguments(parser)`` and
``run(arguments) -> report``; it is imported only when it is called. A report is a JSON object;
with ``--json`` it is the last line of stdout, else what ``text(report)`` makes of it where the
module has that. Logs go to stderr.

Exit status: 0 on success, 1 when the work was done and shows a failure (the report has
``"ok": false``), 2 on unusable input, with one line that names the thing and the mend.
"""

import argparse
import importlib
import json
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from types import ModuleType

COMMANDS = {
    "plan": "print the cells, sessions, requests and estimated time of a study",
    "list-engines": "print which engine has which drafting method",
    "fetch": "fetch one pinned artifact and check its sums",
    "lock-data": "write the sums of fetched files into the lock",
    "collect": "turn the rows of one source into candidates or long texts",
    "convert": "convert a target into the format of an engine",
    "embed": "embed the candidates of one source",
    "select": "select the prompts that are least alike",
    "bucket": "cut texts to one exact length in tokens",
    "tokenize": "render the chat template and encode prompts",
    "serve-engine": "keep one engine up for all loads of its session",
    "run-cell": "have an engine, send a workload, record",
    "load": "send prompts to any running server and record",
    "merge-journal": "make the record of a load that was killed",
    "measure": "compute every metric from one record",
    "aggregate": "compute the tables of a study from its records",
    "check-lossless": "compare greedy replies with a drafter to those without",
    "describe": "say what the selected prompts are, beside the paper",
    "export-prompts": "write a split as other tools read SPEED-Bench",
    "plot-pareto": "draw user tokens/s against output tokens/s per device",
    "plot-acceptance": "draw acceptance length by category and accepted lengths",
    "compare-selections": "compare the selection with what else could have been chosen",
    "plot-diversity": "draw how alike the selected prompts are",
    "plot-random-vs-real": "draw the same load with random tokens and with real prompts",
    "write-study": "write the resolved study with versions, commit and hardware",
    "stability": "how much acceptance length depends on the choice of prompts",
    "recover": "make a folder usable after a run that was killed or had failed cells",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run one subcommand and exit with its status."""
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = words[0] if words and words[0] in COMMANDS else None
    parser = _parser(chosen)
    arguments = parser.parse_args(words)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S"
    )
    try:
        module = _module(arguments.command)
        report = module.run(arguments)
    except ValueError as error:
        print(f"speedstudy {arguments.command}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as error:
        print(f"speedstudy {arguments.command}: {error or 'interrupted'}", file=sys.stderr)
        sys.exit(130)
    if arguments.json:
        print(json.dumps(report, ensure_ascii=False, allow_nan=False))
    elif hasattr(module, "text"):
        print(module.text(report))
    sys.exit(0 if report.get("ok", True) else 1)


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="speedstudy",
        description="Measure speculative decoding on diverse real prompts and under real load.",
    )
    parser.add_argument("--version", action="version", version=version("speedstudy"))
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name == chosen:
            _module(name).add_arguments(subparser)
            subparser.add_argument(
                "--json", action="store_true", help="print the report as JSON on the last line"
            )
    return parser


def _module(command: str) -> ModuleType:
    folder = "figures." if command.startswith("plot-") else ""
    return importlib.import_module(f"speedstudy.{folder}{command.replace('-', '_')}")
