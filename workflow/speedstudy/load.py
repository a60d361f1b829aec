"""``speedstudy load``: send prompts to any running server and record what comes back.

Needs a prompt file and a server, leaves ``requests.parquet``, then ``cell.json``. The file is
there also when the run was interrupted or the server died; ``status`` and ``reason`` say so.
"""

import argparse
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from speedstudy import chat, environment, records, workload
from speedstudy.client.crew import STREAMS_A_PROCESS
from speedstudy.client.load import JOURNAL, begin_journal, end_journal, run_load
from speedstudy.client.options import ARRIVAL_KINDS, ArrivalKind, LoadOptions, Timeouts
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling
from speedstudy.workload import Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LOG = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``speedstudy load``."""
    limits = Timeouts()
    server = parser.add_argument_group("server")
    server.add_argument(
        "--dialect", required=True, choices=sorted(DIALECTS), help="the server's wire format"
    )
    server.add_argument("--url", required=True, help="http://host:port, without a route")
    server.add_argument("--model", required=True, help="the model's name in the requests")
    server.add_argument(
        "--devices", type=int, default=1, metavar="D", help="devices that serve (default 1)"
    )
    prompts = parser.add_argument_group("prompts")
    prompts.add_argument(
        "--prompts",
        type=Path,
        required=True,
        metavar="FILE.jsonl",
        help='rows {"prompt_id": str, "category": str?, "turns": [str]}, the turns rendered with '
        'the tokenizer\'s chat template; "prompt_token_ids": [int] replaces the first turn',
    )
    prompts.add_argument(
        "--tokenizer", type=Path, metavar="DIR", help="model folder with tokenizer and template"
    )
    prompts.add_argument(
        "--warmup",
        type=int,
        default=0,
        metavar="N",
        help="prompts sent before the clock starts, kept out of the record (default 0)",
    )
    prompts.add_argument(
        "--warmup-prompts", type=Path, metavar="FILE", help="their rows; none may be measured too"
    )
    load = parser.add_argument_group("load")
    load.add_argument(
        "--concurrency",
        type=int,
        required=True,
        metavar="C",
        help="requests in flight: just so many, or with --rate at most",
    )
    load.add_argument("--rate", type=float, metavar="R", help="open loop: conversations per second")
    load.add_argument(
        "--arrivals",
        choices=ARRIVAL_KINDS,
        help="when conversations start; with --rate poisson (default), gamma or constant, with "
        "--trace trace, else closed: when another has ended",
    )
    load.add_argument(
        "--burstiness",
        type=float,
        default=1.0,
        metavar="K",
        help="shape of gamma gaps: 1 is Poisson, below 1 burstier (default 1)",
    )
    load.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="arrival times in seconds from the start, one a line, in rising order; for as many "
        "conversations, prompts repeated if need be",
    )
    load.add_argument(
        "--ramp",
        type=float,
        default=0.0,
        metavar="S",
        help="seconds over which concurrency, or the rate, rises to its full value (default 0)",
    )
    load.add_argument(
        "--ramp-steps",
        type=int,
        default=0,
        metavar="N",
        help="rise in N equal steps (default 0: evenly)",
    )
    length = load.add_mutually_exclusive_group()
    length.add_argument(
        "--requests",
        type=int,
        metavar="N",
        help="prompts to send, from the first on, repeated if need be; a conversation counts as "
        "one (default: each row once, in order)",
    )
    length.add_argument(
        "--duration",
        type=float,
        metavar="S",
        help="seconds during which requests are started; those open then are finished",
    )
    load.add_argument(
        "--processes",
        type=int,
        metavar="P",
        help=f"client processes (default: one for each {STREAMS_A_PROCESS} requests in flight, at "
        "most one for two cores)",
    )
    for name, default, what in (
        ("--connect-timeout", limits.connect_s, "for the connection"),
        ("--first-token-timeout", limits.first_token_s, "for the first bytes of a reply"),
        ("--between-tokens-timeout", limits.between_tokens_s, "for more bytes after the last"),
        ("--total-timeout", limits.total_s, "for a whole reply"),
    ):
        load.add_argument(
            name, type=float, default=default, metavar="S", help=f"seconds {what} ({default:g})"
        )
    decoding = parser.add_argument_group("decoding")
    decoding.add_argument(
        "--max-tokens", type=int, required=True, metavar="T", help="most tokens of one reply"
    )
    decoding.add_argument("--ignore-eos", action="store_true", help="always decode T tokens")
    decoding.add_argument(
        "--temperature", type=float, default=0.0, metavar="X", help="default 0, greedy"
    )
    decoding.add_argument(
        "--seed", type=int, default=0, metavar="S", help="of sampling and of arrivals (default 0)"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to fill")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the load and write its record.

    Returns:
        ``{ok, reason, out, requests, verdict}``; ``ok`` is False if any request is not.

    Raises:
        ValueError: Unusable input; nothing was sent.
    """
    if arguments.devices < 1:
        raise ValueError(f"--devices {arguments.devices}: give the number of devices, from 1")
    tokenizer = None if arguments.tokenizer is None else chat.load_tokenizer(arguments.tokenizer)
    prompts = read_prompts(arguments.prompts, tokenizer)
    warmup = _warmup_prompts(arguments, tokenizer)
    options = _options(arguments)
    dialect = DIALECTS[arguments.dialect]
    if (arguments.out / JOURNAL).exists():
        raise ValueError(
            f"{arguments.out / JOURNAL} is of a load that was killed: `speedstudy merge-journal "
            f"{arguments.out}` makes its record, or remove it"
        )
    (arguments.out / "cell.json").unlink(missing_ok=True)  # of an earlier run
    cell: dict[str, Any] = {
        "record_version": records.RECORD_VERSION,
        "status": "failed",
        "reason": None,
        "cell_id": None,
        "load": _load_section(arguments, options),
        "workload": {
            "name": str(arguments.prompts),
            "digest": workload.digest(prompts),
            "prompts": len(prompts),
        },
        "hardware": environment.hardware(),
        "software": environment.software(),
        "first_token": dialect.first_token,
    }
    begin_journal(arguments.out, cell)
    result = run_load(options, prompts, warmup, dialect, arguments.out)
    reason = result.failure()
    cell.update(
        status="ok" if reason is None else "failed",
        reason=reason,
        load={**cell["load"], "body_example": result.body_example},
        engine=result.server,
        started_at=result.started_at,
        ended_at=result.ended_at,
        span_s=result.span_s,
        warmup=result.warmup,
        counters=result.counters,
        client=result.client,
    )
    records.write_json(arguments.out / "cell.json", cell)
    end_journal(arguments.out)
    if reason is not None:
        LOG.error("%s", reason)
    return {
        "ok": reason is None,
        "reason": reason,
        "out": str(arguments.out),
        "requests": {"total": sum(result.outcomes.values()), **result.outcomes},
        "verdict": result.client["verdict"],
    }


def read_prompts(path: Path, tokenizer: "PreTrainedTokenizerBase | None") -> list[Prompt]:
    """Return the prompts of a JSONL file, in its order.

    Args:
        path: One row a line, blank lines aside; see ``--prompts``.
        tokenizer: For rows with text that is to be sent; may be None if there are none.

    Raises:
        ValueError: The file is missing or empty, or a row cannot be used; names file and line.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file; --prompts wants a JSONL file")
    prompts: list[Prompt] = []
    seen: set[str] = set()
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            prompt = _prompt(orjson.loads(line), tokenizer)
            if prompt.prompt_id in seen:
                raise ValueError(f"prompt_id {prompt.prompt_id!r} is there twice")
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        seen.add(prompt.prompt_id)
        prompts.append(prompt)
    if not prompts:
        raise ValueError(f"{path}: no prompts in it")
    return prompts


def _prompt(row: Any, tokenizer: "PreTrainedTokenizerBase | None") -> Prompt:
    if not isinstance(row, Mapping):
        raise ValueError("not a JSON object")
    prompt_id, category, turns = row.get("prompt_id"), row.get("category"), row.get("turns")
    first = row.get("prompt_token_ids")
    if not isinstance(prompt_id, str) or not prompt_id:
        raise ValueError('"prompt_id" must be a string that is not empty')
    if category is not None and not isinstance(category, str):
        raise ValueError('"category" must be a string or left out')
    if turns is None and first is not None:
        turns = [""]
    if not isinstance(turns, list) or not turns or not all(isinstance(t, str) for t in turns):
        raise ValueError('"turns" must be a list of strings that is not empty')
    if first is not None and not (first and _are_token_ids(first)):
        raise ValueError('"prompt_token_ids" must be a list of token ids that is not empty')
    rendered: tuple[tuple[int, ...], ...] = ()
    if first is None or len(turns) > 1:
        if tokenizer is None:
            raise ValueError("its text needs --tokenizer, a folder with tokenizer and template")
        rendered = chat.conversation_ids(tokenizer, turns)
    if first is not None:
        rendered = (tuple(first), *rendered[1:])
    return Prompt(prompt_id=prompt_id, category=category, turn_token_ids=rendered)


def _are_token_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _warmup_prompts(
    arguments: argparse.Namespace, tokenizer: "PreTrainedTokenizerBase | None"
) -> list[Prompt]:
    if arguments.warmup == 0 and arguments.warmup_prompts is None:
        return []
    if arguments.warmup < 1 or arguments.warmup_prompts is None:
        raise ValueError("give --warmup N, from 1, and --warmup-prompts FILE together")
    prompts = read_prompts(arguments.warmup_prompts, tokenizer)
    if len(prompts) < arguments.warmup:
        raise ValueError(
            f"{arguments.warmup_prompts} has {len(prompts)} prompts, --warmup asks for "
            f"{arguments.warmup}; ask for fewer or add rows"
        )
    return prompts[: arguments.warmup]


def read_trace(path: Path) -> tuple[float, ...]:
    """Return the arrival times of a file, one a line, blank lines aside.

    Raises:
        ValueError: There is no such file, or a line is not a number.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file; --trace wants one arrival time a line")
    times_s = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            try:
                times_s.append(float(line))
            except ValueError:
                raise ValueError(f"{path}, line {number}: {line!r} is no number of s") from None
    return tuple(times_s)


def _options(arguments: argparse.Namespace) -> LoadOptions:
    arrivals: ArrivalKind = "closed" if arguments.rate is None else "poisson"
    if arguments.trace is not None:
        arrivals = "trace"
    return LoadOptions(
        url=arguments.url,
        model=arguments.model,
        concurrency=arguments.concurrency,
        arrivals=arguments.arrivals or arrivals,
        rate_per_s=arguments.rate,
        burstiness=arguments.burstiness,
        trace_s=None if arguments.trace is None else read_trace(arguments.trace),
        ramp_s=arguments.ramp,
        ramp_steps=arguments.ramp_steps,
        processes=arguments.processes,
        requests=arguments.requests,
        duration_s=arguments.duration,
        arrival_seed=arguments.seed,
        sampling=Sampling(
            max_tokens=arguments.max_tokens,
            temperature=arguments.temperature,
            seed=arguments.seed,
            ignore_eos=arguments.ignore_eos,
        ),
        timeouts=Timeouts(
            connect_s=arguments.connect_timeout,
            first_token_s=arguments.first_token_timeout,
            between_tokens_s=arguments.between_tokens_timeout,
            total_s=arguments.total_timeout,
        ),
    )


def _load_section(arguments: argparse.Namespace, options: LoadOptions) -> dict[str, Any]:
    """The load as it was asked for, with units in the names."""
    return {
        "dialect": arguments.dialect,
        "url": arguments.url,
        "model": arguments.model,
        "arrivals": options.arrivals,
        "concurrency": arguments.concurrency,
        "rate_per_s": arguments.rate,
        "burstiness": arguments.burstiness,
        "trace_s": options.trace_s,
        "ramp_s": arguments.ramp,
        "ramp_steps": arguments.ramp_steps,
        "requests": arguments.requests,
        "duration_s": arguments.duration,
        "max_tokens": arguments.max_tokens,
        "ignore_eos": arguments.ignore_eos,
        "temperature": arguments.temperature,
        "seed": arguments.seed,
        "tokenizer": None if arguments.tokenizer is None else str(arguments.tokenizer),
        "warmup": arguments.warmup,
        "warmup_prompts": None
        if arguments.warmup_prompts is None
        else str(arguments.warmup_prompts),
        "processes": arguments.processes,
        "devices": arguments.devices,
        "connect_timeout_s": arguments.connect_timeout,
        "first_token_timeout_s": arguments.first_token_timeout,
        "between_tokens_timeout_s": arguments.between_tokens_timeout,
        "total_timeout_s": arguments.total_timeout,
    }
