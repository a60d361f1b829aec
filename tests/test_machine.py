"""CPU time that others took, free memory, and what they make of a verdict."""

import os
import subprocess
import sys

import psutil
import pytest

from speedstudy.machine import Snapshot, Watch, contention, judged, watched


def watch(*, busy_s, own_s, available_gib=8.0):
    """A load of 10 s on two cores; figures at its start and end."""
    before, after = (
        Snapshot(time_s=time_s, busy_s=busy, steal_s=0.0, own_s=own, swapped_mib=0.0)
        for time_s, busy, own in zip((0.0, 10.0), busy_s, own_s, strict=True)
    )
    return Watch(
        cores=2,
        memory_total_gib=16.0,
        memory_available_gib=available_gib,
        before=before,
        after=after,
    )


def test_foreign_cpu_is_what_the_machine_worked_beyond_the_measurement():
    report = watch(busy_s=(100.0, 118.0), own_s=(3.0, 17.0)).report()
    assert report["foreign_cpu_share"] == pytest.approx((18 - 14) / (2 * 10))
    assert contention(report) == ["other processes took 20.0% of the 2 cores, bound 5%"]


def test_a_machine_of_ones_own_is_not_contended():
    report = watch(busy_s=(100.0, 118.0), own_s=(0.0, 18.2)).report()
    assert report["foreign_cpu_share"] == 0.0
    assert contention(report) == []


def test_an_ended_process_leaves_the_share_unknown():
    report = watch(busy_s=(100.0, 118.0), own_s=(3.0, None)).report()
    assert report["foreign_cpu_share"] is None
    assert contention(report) == []


def test_low_memory_is_named():
    report = watch(busy_s=(0.0, 1.0), own_s=(0.0, 1.0), available_gib=0.5).report()
    assert contention(report) == ["0.50 of 16.0 GiB of memory were free, bound 5%"]


def test_contention_never_hides_another_verdict():
    reasons = ["others were there"]
    valid = {"verdict": "valid", "crossed": []}
    assert judged(valid, []) == valid
    assert judged(valid, reasons)["verdict"] == "contended"
    late = {"verdict": "client_bound", "crossed": ["client_bound: late"]}
    assert judged(late, reasons) == {
        "verdict": "client_bound",
        "crossed": ["client_bound: late", "contended: others were there"],
    }


def test_a_child_that_is_named_as_well_counts_once():
    """An engine may be the child of its client, or of a supervisor."""
    code = "import time; sum(range(10**7)); print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        used_s = sum(psutil.Process(child.pid).cpu_times()[:2])
        with watched([os.getpid()]) as alone, watched([os.getpid(), child.pid]) as both:
            pass
        child.kill()
    assert used_s > 0.1
    assert both.before.own_s - alone.before.own_s < used_s / 2


def test_this_very_machine_can_be_watched():
    with watched([os.getpid()]) as seen:
        sum(range(10**6))
    report = seen.report()
    assert report["memory_available_gib"] > 0
    assert report["foreign_cpu_share"] >= 0
    with watched([2**22 + 1]) as seen:  # above the kernel's largest pid
        pass
    assert seen.report()["foreign_cpu_share"] is None
