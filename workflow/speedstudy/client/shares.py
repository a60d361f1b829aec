"""A load divided among its workers."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from speedstudy.client.arrivals import due_times, slot_start_s
from speedstudy.client.crew import default_processes
from speedstudy.client.options import LoadOptions
from speedstudy.client.outbox import write_outbox
from speedstudy.client.worker import Share
from speedstudy.dialects import Dialect
from speedstudy.workload import Prompt


def number_of_jobs(options: LoadOptions, prompts: int) -> int | None:
    """Return how many conversations a load has; None: as many as fit into its duration."""
    due_s = due_times(options, prompts)
    if due_s is not None:
        return len(due_s)
    return None if options.duration_s is not None else options.requests or prompts


def number_of_requests(prompts: Sequence[Prompt], jobs: int | None) -> int | None:
    """Return how many requests a load sends if nothing fails; None if its duration decides."""
    if jobs is None:
        return None
    sent = itertools.islice(itertools.cycle(prompts), jobs)
    return sum(len(prompt.turn_token_ids) for prompt in sent)


def divide(
    options: LoadOptions,
    prompts: Sequence[Prompt],
    dialect: Dialect,
    folder: Path,
) -> list[Share]:
    """Divide the slots of a load among its workers; writes the requests that they share."""
    due_s, jobs = due_times(options, len(prompts)), number_of_jobs(options, len(prompts))
    slots = options.concurrency if jobs is None else max(1, min(options.concurrency, jobs))
    workers = min(options.processes or default_processes(slots), slots)
    ramp_s = options.ramp_s if due_s is None else 0.0  # an open loop ramps its arrivals
    starts_s = [slot_start_s(slot, slots, ramp_s, options.ramp_steps) for slot in range(slots)]
    outbox = folder / "requests.bin"
    bounds = write_outbox(outbox, options, prompts, dialect)
    conversations = {
        place: prompt.turn_token_ids
        for place, prompt in enumerate(prompts)
        if len(prompt.turn_token_ids) > 1
    }
    return [
        Share(
            name=f"worker_{index}",
            journal=folder / f"worker_{index}.exchanges",
            options=options,
            dialect=dialect,
            outbox=outbox,
            bounds=bounds,
            conversations=conversations,
            jobs=jobs,
            due_s=due_s,
            slot_starts_s=starts_s[index::workers],  # so that all workers ramp up alike
        )
        for index in range(workers)
    ]
