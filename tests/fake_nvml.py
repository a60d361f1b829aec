"""A fake of NVML for tests: GPUs with set values, on a machine that has none.

Only the functions that ``speedstudy.telemetry`` calls, under the names of nvidia-ml-py.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace

MIB = 2**20


class FakeNvmlError(Exception):
    pass


class FakeNotSupported(FakeNvmlError):
    pass


@dataclass
class FakeGpu:
    uuid: str
    used_mib: int = 400
    total_mib: int = 81920
    watts: int = 300
    busy_pct: int = 0
    pids: list[int] = field(default_factory=list)
    counts_energy: bool = True
    joules: float = 1000.0
    lost: bool = False


class FakeNvml:
    NVMLError = FakeNvmlError
    NVMLError_NotSupported = FakeNotSupported
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = gpus

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return next(gpu for gpu in self.gpus if gpu.uuid == uuid)

    def nvmlDeviceGetName(self, gpu):
        return "Fake GPU"

    def nvmlDeviceGetUUID(self, gpu):
        return gpu.uuid

    def nvmlDeviceGetMemoryInfo(self, gpu):
        if gpu.lost:
            raise FakeNvmlError("GPU is lost")
        return SimpleNamespace(
            total=gpu.total_mib * MIB,
            used=gpu.used_mib * MIB,
            free=(gpu.total_mib - gpu.used_mib) * MIB,
        )

    def nvmlDeviceGetComputeRunningProcesses(self, gpu):
        return [SimpleNamespace(pid=pid, usedGpuMemory=2048 * MIB) for pid in gpu.pids]

    def nvmlDeviceGetUtilizationRates(self, gpu):
        return SimpleNamespace(gpu=gpu.busy_pct, memory=0)

    def nvmlDeviceGetPowerUsage(self, gpu):
        return gpu.watts * 1000

    def nvmlDeviceGetClockInfo(self, gpu, which):
        return 1980

    def nvmlDeviceGetTemperature(self, gpu, which):
        return 55

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu):
        if not gpu.counts_energy:
            raise FakeNotSupported("not supported")
        return int(gpu.joules * 1000)
