"""GPUs while a load runs: memory, power, clocks and energy, and who else is on them.

Read through NVML (nvidia-ml-py) in a thread beside the load; on a machine without an NVIDIA driver
everything here is None. This module imports nothing of ours.
"""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

INTERVAL_S = 0.5
MIB = 2**20
# A driver keeps a little memory of an idle GPU for itself.
IDLE_MEMORY_MIB = 1024
IDLE_UTILIZATION_PCT = 5


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What one GPU says at one time.

    Attributes:
        time_s: Seconds of the epoch.
        energy_j: Counted by the GPU since its driver was loaded; None where it does not count.
    """

    time_s: float
    memory_used_mib: float
    power_w: float
    sm_clock_mhz: int
    utilization_pct: int
    temperature_c: int
    energy_j: float | None


@dataclass(kw_only=True)
class Telemetry:
    """Samples by GPU, in the order of the GPUs.

    Attributes:
        devices: Name, uuid and memory of each GPU.
        samples: Its samples in time order, the first before the load and the last after it.
        error: Why a sample could not be taken, None if all were.
    """

    devices: list[dict[str, Any]]
    samples: list[list[Sample]]
    error: str | None = None

    def report(self, started_at: str, ended_at: str) -> dict[str, Any]:
        """Return what the GPUs did between two times (ISO 8601), the warm-up left out.

        Energy is the difference of the GPU's own counter, else the integral of its power; the
        counter is read at ``INTERVAL_S`` and taken as straight in between. It is null with fewer
        than two samples. The keys carry the units.
        """
        window = (_epoch(started_at), _epoch(ended_at))
        devices = [
            {**device, **_summary(samples, *window)}
            for device, samples in zip(self.devices, self.samples, strict=True)
        ]
        energies = [device["energy_j"] for device in devices]
        return {
            "interval_s": INTERVAL_S,
            "span_s": window[1] - window[0],
            "error": self.error,
            "energy_j": None if None in energies else sum(energies),
            "devices": devices,
        }


def open_nvml() -> Any:
    """Return NVML, initialised; None on a machine without an NVIDIA driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def visible_gpus(nvml: Any, gpus: int) -> list[Any]:
    """Return handles of the first ``gpus`` GPUs that an engine sees.

    They are those of ``CUDA_VISIBLE_DEVICES`` (numbers or UUIDs) if that is set. The numbers are
    taken in NVML's order, which is CUDA's with ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` or equal GPUs.

    Raises:
        ValueError: There are fewer.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = (
        [str(index) for index in range(nvml.nvmlDeviceGetCount())]
        if named is None
        else [name.strip() for name in named.split(",") if name.strip()]
    )
    if len(names) < gpus:
        raise ValueError(
            f"the engine uses {gpus} GPUs and {len(names)} are visible; lower its gpus or change "
            "CUDA_VISIBLE_DEVICES"
        )
    return [
        nvml.nvmlDeviceGetHandleByIndex(int(name))
        if name.isdecimal()
        else nvml.nvmlDeviceGetHandleByUUID(name)
        for name in names[:gpus]
    ]


def gpus_before(gpus: int, nvml: Any = None) -> list[dict[str, Any]] | None:
    """Return the state of the GPUs that an engine will use, before it starts.

    Args:
        gpus: How many it uses.
        nvml: For tests; None opens the machine's own.

    Returns:
        A row a GPU: name, uuid, memory in MiB, utilisation in percent, and the processes that
        compute on it (``pid``, ``memory_mib``); None without GPUs or without NVML.
    """
    nvml = None if gpus == 0 else nvml or open_nvml()
    if nvml is None:
        return None
    rows = []
    for handle in visible_gpus(nvml, gpus):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        rows.append(
            {
                **_identity(nvml, handle),
                "memory_free_mib": memory.free / MIB,
                "memory_used_mib": memory.used / MIB,
                "utilization_pct": nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
                "processes": [
                    {"pid": one.pid, "memory_mib": (one.usedGpuMemory or 0) / MIB}
                    for one in processes
                ],
            }
        )
    return rows


def contention(
    before: Sequence[dict[str, Any]] | None, wanted_gib: float | None = None
) -> list[str]:
    """Return why the GPUs are not the engine's own, one line each; empty if they are.

    Args:
        before: From ``gpus_before``.
        wanted_gib: Memory that the target needs over all GPUs (``Target.memory_gib``), or None.
    """
    reasons = []
    for number, gpu in enumerate(before or ()):
        if gpu["processes"]:
            pids = ", ".join(str(one["pid"]) for one in gpu["processes"])
            reasons.append(f"GPU {number}: other processes compute on it (pid {pids})")
        elif gpu["memory_used_mib"] > IDLE_MEMORY_MIB:
            # In a container the processes of others cannot be seen, their memory can.
            reasons.append(f"GPU {number}: {gpu['memory_used_mib']:.0f} MiB are taken by others")
        if gpu["utilization_pct"] > IDLE_UTILIZATION_PCT:
            reasons.append(f"GPU {number}: {gpu['utilization_pct']} % busy before the start")
    free_gib = sum(gpu["memory_free_mib"] for gpu in before or ()) / 1024
    if before and wanted_gib is not None and free_gib < wanted_gib:
        reasons.append(
            f"{free_gib:.0f} GiB of GPU memory are free, the target needs {wanted_gib:g}"
        )
    return reasons


@contextmanager
def sampled(
    gpus: int, nvml: Any = None, interval_s: float = INTERVAL_S
) -> Iterator[Telemetry | None]:
    """Sample the GPUs that an engine uses while the body runs.

    Args:
        gpus: How many the engine uses; with 0 the body gets None, as without NVML.
        nvml: For tests; None opens the machine's own.
        interval_s: Seconds between samples. One takes about a millisecond a GPU.
    """
    nvml = None if gpus == 0 else nvml or open_nvml()
    if nvml is None:
        yield None
        return
    handles = visible_gpus(nvml, gpus)
    telemetry = Telemetry(
        devices=[_identity(nvml, handle) for handle in handles], samples=[[] for _ in handles]
    )
    done = threading.Event()

    def take() -> None:
        try:
            for handle, samples in zip(handles, telemetry.samples, strict=True):
                samples.append(_sample(nvml, handle))
        except nvml.NVMLError as error:  # a lost GPU is the engine's story, not this thread's end
            telemetry.error = str(error)

    def keep_taking() -> None:
        while telemetry.error is None and not done.wait(interval_s):
            take()

    thread = threading.Thread(target=keep_taking, name="gpu-telemetry", daemon=True)
    take()
    thread.start()
    try:
        yield telemetry
    finally:
        done.set()
        thread.join()
        take()


def _identity(nvml: Any, handle: Any) -> dict[str, Any]:
    return {
        "name": nvml.nvmlDeviceGetName(handle),
        "uuid": nvml.nvmlDeviceGetUUID(handle),
        "memory_total_mib": nvml.nvmlDeviceGetMemoryInfo(handle).total / MIB,
    }


def _sample(nvml: Any, handle: Any) -> Sample:
    try:
        energy_j = nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000
    except nvml.NVMLError_NotSupported:  # before Volta
        energy_j = None
    return Sample(
        time_s=time.time(),
        memory_used_mib=nvml.nvmlDeviceGetMemoryInfo(handle).used / MIB,
        power_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        sm_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        utilization_pct=nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        temperature_c=nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        energy_j=energy_j,
    )


def _epoch(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _summary(samples: Sequence[Sample], start_s: float, end_s: float) -> dict[str, Any]:
    inside = [one for one in samples if start_s <= one.time_s <= end_s]
    return {
        "samples": len(inside),
        "memory_used_mib": _statistics([one.memory_used_mib for one in inside]),
        "power_w": _statistics([one.power_w for one in inside]),
        "sm_clock_mhz": _statistics([one.sm_clock_mhz for one in inside]),
        "utilization_pct": _statistics([one.utilization_pct for one in inside]),
        "temperature_c": _statistics([one.temperature_c for one in inside]),
        "energy_j": _energy_j(samples, start_s, end_s),
    }


def _statistics(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"least": min(values), "mean": sum(values) / len(values), "most": max(values)}


def _energy_j(samples: Sequence[Sample], start_s: float, end_s: float) -> float | None:
    """Energy between two times; None if the samples do not reach over both."""
    times = [one.time_s for one in samples]
    if len(samples) < 2 or times[0] > start_s or times[-1] < end_s:
        return None
    energies = [one.energy_j for one in samples]
    if None in energies:
        total, energies = 0.0, [0.0]
        for before, after in pairwise(samples):
            total += (before.power_w + after.power_w) / 2 * (after.time_s - before.time_s)
            energies.append(total)
    return _between(times, energies, end_s) - _between(times, energies, start_s)


def _between(times: Sequence[float], values: Sequence[Any], at_s: float) -> float:
    """Straight interpolation; ``at_s`` is within ``times``."""
    import numpy as np

    return float(np.interp(at_s, times, values))
