"""GPU telemetry on a fake NVML: which GPUs, how much energy, and whether they were free."""

from datetime import UTC, datetime

import pytest

from fake_nvml import FakeGpu, FakeNvml
from speedstudy.telemetry import Sample, Telemetry, contention, gpus_before, sampled


@pytest.fixture(autouse=True)
def _all_gpus_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def sample(time_s, *, power_w=300.0, energy_j=None, memory_used_mib=1000.0):
    return Sample(
        time_s=time_s,
        memory_used_mib=memory_used_mib,
        power_w=power_w,
        sm_clock_mhz=1980,
        utilization_pct=90,
        temperature_c=60,
        energy_j=energy_j,
    )


def moment(time_s):
    return datetime.fromtimestamp(time_s, UTC).isoformat()


def report(samples, start_s, end_s):
    telemetry = Telemetry(devices=[{"uuid": "GPU-a"}], samples=[samples])
    return telemetry.report(moment(start_s), moment(end_s))


def test_energy_is_the_counters_difference_between_the_two_times():
    """The load runs from 11 to 14 s; 100 J/s before 12 s, 400 J/s after it."""
    samples = [sample(10, energy_j=5000), sample(12, energy_j=5200), sample(16, energy_j=6800)]
    told = report(samples, 11, 14)
    assert told["energy_j"] == pytest.approx(100 + 800)
    assert told["span_s"] == pytest.approx(3)


def test_energy_without_a_counter_is_the_integral_of_power():
    """200 W rising to 400 W in 2 s is 600 J; from the middle (300 W) on, 350 J."""
    samples = [sample(10, power_w=200), sample(11, power_w=300), sample(12, power_w=400)]
    assert report(samples, 10, 12)["energy_j"] == pytest.approx(600)
    assert report(samples, 11, 12)["energy_j"] == pytest.approx(350)


@pytest.mark.parametrize("samples", [[], [sample(10)], [sample(10), sample(11)]])
def test_energy_is_unknown_when_samples_do_not_reach_over_the_load(samples):
    assert report(samples, 10, 12)["energy_j"] is None


def test_statistics_are_of_the_load_and_not_of_the_warm_up():
    samples = [
        sample(10, memory_used_mib=9000),
        sample(11, memory_used_mib=1000),
        sample(12, memory_used_mib=3000),
    ]
    (device,) = report(samples, 10.5, 12)["devices"]
    assert device["memory_used_mib"] == {"least": 1000, "mean": 2000, "most": 3000}
    assert device["samples"] == 2


def test_a_load_shorter_than_the_interval_has_a_sample_before_and_after_it():
    gpu = FakeGpu("GPU-a", joules=1000)
    with sampled(1, FakeNvml(gpu), interval_s=60) as telemetry:
        started = datetime.now(UTC).isoformat()
        ended = datetime.now(UTC).isoformat()
        gpu.joules = 1500
    energies = [one.energy_j for one in telemetry.samples[0]]
    assert energies == [1000, 1500]
    assert 0 <= telemetry.report(started, ended)["energy_j"] <= 500


def test_samples_are_taken_while_the_load_runs():
    nvml = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    with sampled(2, nvml, interval_s=0.001) as telemetry:
        while len(telemetry.samples[1]) < 5:
            pass
    assert len(telemetry.samples[0]) >= 5


def test_a_lost_gpu_ends_the_samples_and_not_the_load():
    gpu = FakeGpu("GPU-a")
    with sampled(1, FakeNvml(gpu), interval_s=60) as telemetry:
        gpu.lost = True
    told = telemetry.report(moment(0), moment(1))
    assert told["error"] == "GPU is lost"
    assert told["energy_j"] is None


def test_an_engine_without_gpus_is_not_sampled():
    with sampled(0, FakeNvml(FakeGpu("GPU-a"))) as telemetry:
        assert telemetry is None
    assert gpus_before(0, FakeNvml(FakeGpu("GPU-a"))) is None
    assert contention(None) == []


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, ["GPU-a"]), ("1,0", ["GPU-b"]), ("GPU-c", ["GPU-c"])],
)
def test_the_gpus_are_those_that_the_engine_sees(monkeypatch, visible, expected):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nvml = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"), FakeGpu("GPU-c"))
    assert [gpu["uuid"] for gpu in gpus_before(1, nvml)] == expected


def test_fewer_gpus_than_the_engine_uses_is_an_error():
    with pytest.raises(ValueError, match="uses 2 GPUs and 1 are visible"):
        gpus_before(2, FakeNvml(FakeGpu("GPU-a")))


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (FakeGpu("GPU-a"), None),
        (
            FakeGpu("GPU-a", pids=[41, 42], used_mib=5000),
            "other processes compute on it (pid 41, 42)",
        ),
        (FakeGpu("GPU-a", used_mib=5000), "5000 MiB are taken by others"),
        (FakeGpu("GPU-a", busy_pct=70), "70 % busy before the start"),
    ],
)
def test_a_gpu_that_others_use_is_told(gpu, reason):
    reasons = contention(gpus_before(1, FakeNvml(gpu)))
    assert reasons == ([] if reason is None else [f"GPU 0: {reason}"])


def test_too_little_memory_is_told():
    before = gpus_before(1, FakeNvml(FakeGpu("GPU-a", total_mib=81920, used_mib=0)))
    assert contention(before, wanted_gib=80) == []
    assert contention(before, wanted_gib=150) == [
        "80 GiB of GPU memory are free, the target needs 150"
    ]
