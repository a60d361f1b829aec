"""The machine around a load: free memory at its start, and the CPU time that others took from it.

A measurement on a busy machine is recorded like any other, with the verdict ``contended``. Linux
counts CPU time for the whole machine, in a container too. This module imports nothing of ours.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import psutil

GIB = 2**30
MIB = 2**20
# Others' share of all cores; an engine that wants all of them is slower by about as much.
FOREIGN_CPU_SHARE_BOUND = 0.05
# Below this share of free memory the kernel takes back file pages, the weights' among them.
LEAST_MEMORY_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Counters at one time.

    Attributes:
        time_s: Monotonic clock.
        busy_s: CPU seconds that the machine worked, over all its cores, stolen ones included.
        steal_s: Those of them that the hypervisor gave to other guests.
        own_s: CPU seconds of the measurement's processes; None if one of them has ended.
        swapped_mib: Read from and written to swap.
    """

    time_s: float
    busy_s: float
    steal_s: float
    own_s: float | None
    swapped_mib: float


@dataclass(kw_only=True)
class Watch:
    """What was seen around a load; ``after`` is None until the load is over."""

    cores: int
    memory_total_gib: float
    memory_available_gib: float
    before: Snapshot
    after: Snapshot | None = None

    def report(self) -> dict[str, Any]:
        """Return the figures, shares of all cores; null where a process has ended meanwhile."""
        if self.after is None:
            raise ValueError("the load that is watched is not over")
        before, after = self.before, self.after
        core_s = self.cores * (after.time_s - before.time_s)
        foreign = None
        if before.own_s is not None and after.own_s is not None:
            foreign_s = after.busy_s - before.busy_s - (after.own_s - before.own_s)
            foreign = max(0.0, foreign_s / core_s)  # the kernel's two accounts differ by ticks
        return {
            "cores": self.cores,
            "memory_total_gib": self.memory_total_gib,
            "memory_available_gib": self.memory_available_gib,
            "foreign_cpu_share": foreign,
            "steal_share": (after.steal_s - before.steal_s) / core_s,
            "swapped_mib": after.swapped_mib - before.swapped_mib,
        }


def contention(report: dict[str, Any]) -> list[str]:
    """Return why the machine was not the measurement's own, one line each; empty if it was."""
    reasons = []
    foreign, memory = report["foreign_cpu_share"], report["memory_available_gib"]
    if foreign is not None and foreign > FOREIGN_CPU_SHARE_BOUND:
        reasons.append(
            f"other processes took {foreign:.1%} of the {report['cores']} cores, bound "
            f"{FOREIGN_CPU_SHARE_BOUND:.0%}"
        )
    if memory < LEAST_MEMORY_SHARE * report["memory_total_gib"]:
        reasons.append(
            f"{memory:.2f} of {report['memory_total_gib']:.1f} GiB of memory were free, bound "
            f"{LEAST_MEMORY_SHARE:.0%}"
        )
    return reasons


def judged(client: dict[str, Any], reasons: Sequence[str]) -> dict[str, Any]:
    """Return the client's self-check with contention added: a ``valid`` one becomes contended."""
    if not reasons:
        return client
    verdict = "contended" if client["verdict"] == "valid" else client["verdict"]
    crossed = [*client["crossed"], *(f"contended: {reason}" for reason in reasons)]
    return {**client, "verdict": verdict, "crossed": crossed}


@contextmanager
def watched(pids: Sequence[int]) -> Iterator[Watch]:
    """Watch the machine while the body runs.

    Args:
        pids: The measurement's processes; what they start belongs to it too.
    """
    memory = psutil.virtual_memory()
    watch = Watch(
        cores=psutil.cpu_count() or 1,
        memory_total_gib=memory.total / GIB,
        memory_available_gib=memory.available / GIB,
        before=_snapshot(pids),
    )
    yield watch
    watch.after = _snapshot(pids)


def _snapshot(pids: Sequence[int]) -> Snapshot:
    cpu, swap = psutil.cpu_times(), psutil.swap_memory()
    steal_s = getattr(cpu, "steal", 0.0)
    extra_s = sum(getattr(cpu, name, 0.0) for name in ("nice", "irq", "softirq"))
    return Snapshot(
        time_s=monotonic(),
        busy_s=cpu.user + cpu.system + extra_s + steal_s,
        steal_s=steal_s,
        own_s=_own_s(pids),
        swapped_mib=(swap.sin + swap.sout) / MIB,
    )


def _own_s(pids: Sequence[int]) -> float | None:
    """CPU seconds of processes and of all that they have started and reaped; each counts once."""
    family: dict[int, psutil.Process] = {}
    total = 0.0
    try:
        for root in map(psutil.Process, pids):
            family |= {one.pid: one for one in (root, *root.children(recursive=True))}
    except psutil.NoSuchProcess:
        return None
    for process in family.values():
        with suppress(psutil.NoSuchProcess):  # ended just now: it is in its parent's account
            total += sum(process.cpu_times()[:4])
    return total
