"""The real pynvml on a libnvidia-ml of ours: GB10, an RTX 4090, two H100s, two unlike cards, no driver, one that hangs, one that dies."""

from __future__ import annotations

from typing import Any

import pytest

READ = """
import time
from spark_rl.telemetry import Sampler
sampler = Sampler()
def fresh(pause=0.0):
    time.sleep(pause)
    return sampler.read()
def settle():
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        reading = sampler.read()
        if reading.missing.get("gpus") != "starting":
            return reading
"""


def test_gb10_has_the_hosts_memory_and_says_what_it_cannot_measure(run_with_nvml: Any) -> None:
    row = run_with_nvml("gb10", READ + "print(json.dumps(settle().to_row()))")
    gpu = row["gpus"][0]
    assert gpu["name"] == "NVIDIA GB10"
    assert gpu["unified"] is True
    assert gpu["memory_source"] == "MemAvailable"
    assert gpu["memory_available_bytes"] == row["host"]["mem_available_bytes"]
    for name in (
        "power_limit_watts",
        "memory_utilization_percent",
        "memory_clock_mhz",
        "memory_temperature_c",
        "fan_percent",
    ):
        assert gpu[name] is None, name
        assert row["missing"][f"gpus.0.{name}"] in ("not_supported", "always_zero"), name
    assert gpu["margin_c"] == 23.0
    assert gpu["thermal_slowed_us"] == 903158
    assert gpu["power_capped_us"] == 165687


@pytest.mark.parametrize("variant", ["gb10_zero", "gb10_memtotal"])
def test_gb10_drivers_that_claim_to_know_the_memory_are_not_believed(run_with_nvml: Any, variant: str) -> None:
    row = run_with_nvml(variant, READ + "print(json.dumps(settle().to_row()))")
    assert row["gpus"][0]["memory_source"] == "MemAvailable"
    assert row["gpus"][0]["memory_available_bytes"] == row["host"]["mem_available_bytes"]


def test_rtx_4090_has_its_own_memory_and_a_margin_from_the_threshold(run_with_nvml: Any) -> None:
    row = run_with_nvml("rtx4090", READ + "print(json.dumps(settle().to_row()))")
    gpu = row["gpus"][0]
    assert (gpu["unified"], gpu["memory_source"]) == (False, "nvml")
    assert gpu["memory_total_bytes"] == 24564 << 20
    assert gpu["power_limit_watts"] == 450.0
    assert gpu["margin_c"] == pytest.approx(97 - gpu["temperature_c"], abs=1)
    assert gpu["event_reasons"] == ["SwPowerCap"]
    assert row["missing"]["gpus.0.memory_temperature_c"] == "not_supported"


def test_both_h100s_are_read(run_with_nvml: Any) -> None:
    row = run_with_nvml("h100x2", READ + "print(json.dumps(settle().to_row()))")
    assert [gpu["index"] for gpu in row["gpus"]] == [0, 1]
    assert [gpu["memory_temperature_c"] for gpu in row["gpus"]] == [68.0, 68.0]


def test_processes_are_split_into_the_runs_and_the_others(run_with_nvml: Any) -> None:
    code = READ + "import os\nsampler.watch(os.getpid())\nprint(json.dumps(settle().to_row()))"
    gpu = run_with_nvml("gb10", code)["gpus"][0]
    assert gpu["run_memory_bytes"] == 3 << 30
    assert gpu["other_memory_bytes"] == 67012 << 20
    assert gpu["other_process"].endswith("(1)")


@pytest.mark.parametrize(
    ("device", "reason"), [(None, "no_driver"), ("nodriver", "no_driver"), ("nodevice", "no_device")]
)
def test_a_machine_without_a_gpu_says_why(run_with_nvml: Any, device: str | None, reason: str) -> None:
    row = run_with_nvml(device, READ + "print(json.dumps(settle().to_row()))")
    assert row["gpus"] == []
    assert row["missing"]["gpus"] == reason
    assert row["headroom_bytes"] > 0


def test_a_driver_that_hangs_delays_no_pass_and_is_named(run_with_nvml: Any) -> None:
    code = (
        READ
        + """
settle()
mood("hang")
slowest, named, memory = 0.0, None, True
deadline = time.monotonic() + 4.5
while time.monotonic() < deadline:
    started = time.monotonic()
    reading = sampler.read()
    slowest = max(slowest, time.monotonic() - started)
    memory = memory and reading.headroom_bytes is not None
    if reading.missing.get("gpus") == "driver_hangs":
        named = reading.to_row()
        break
    time.sleep(0.05)
print(json.dumps([slowest, memory, named]))
"""
    )
    slowest, memory, named = run_with_nvml("gb10", code)
    assert slowest < 0.5
    assert memory is True
    assert named["gpus"][0]["temperature_c"] is None
    assert named["missing"]["gpus.0.temperature_c"] == "driver_hangs"


def test_a_driver_that_hangs_from_the_start_leaves_the_memory_readings(run_with_nvml: Any) -> None:
    code = (
        READ
        + "mood('hang')\nstarted = time.monotonic()\nrow = sampler.read().to_row()\nprint(json.dumps([time.monotonic() - started, row]))"
    )
    seconds, row = run_with_nvml("gb10", code)
    assert seconds < 0.5
    assert row["headroom_bytes"] > 0
    assert row["missing"]["gpus"] == "starting"


def test_a_driver_that_dies_mid_run_is_named_and_comes_back(run_with_nvml: Any) -> None:
    code = """
from spark_rl.telemetry.nvml import NvmlSession, RETRY_SECONDS
now = 0.0
session = NvmlSession(clock=lambda: now)
alive = session.answer()
mood("dead")
now += 1
dead = session.answer()
mood("")
now += 1
waiting = session.answer()
now += RETRY_SECONDS
back = session.answer()
print(json.dumps([[a.state, [g.temperature_c is None for g in a.gpus], a.missing.get("gpus.0.power_watts")] for a in (alive, dead, waiting, back)]))
"""
    alive, dead, waiting, back = run_with_nvml("gb10", code)
    assert alive == ["ok", [False], None]
    assert dead == ["driver_down", [True], "driver_down"]
    assert waiting[0] == "driver_down"
    assert back == ["ok", [False], None]


def test_one_question_that_fails_costs_one_value(run_with_nvml: Any) -> None:
    row = run_with_nvml("gb10", READ + "mood('mute')\nprint(json.dumps(settle().to_row()))")
    gpu = row["gpus"][0]
    assert gpu["temperature_c"] is None
    assert row["missing"]["gpus.0.temperature_c"] == "no_permission"
    assert gpu["power_watts"] is not None


def test_a_question_the_device_does_not_know_is_asked_once(run_with_nvml: Any) -> None:
    code = """
import pynvml
from spark_rl.telemetry.nvml import NvmlSession
asked = 0
real = pynvml.nvmlDeviceGetFanSpeed
def counted(handle):
    global asked
    asked += 1
    return real(handle)
pynvml.nvmlDeviceGetFanSpeed = counted
now = 0.0
session = NvmlSession(clock=lambda: now)
for _ in range(5):
    session.answer()
    now += 3.0
print(asked)
"""
    assert run_with_nvml("gb10", code) == 1


@pytest.mark.parametrize(
    ("mood", "rule"), [("stuck", "stuck_low"), ("hot", "thermal_throttling"), ("frozen", "frozen_sensor")]
)
def test_a_fault_seen_through_the_driver_is_named(run_with_nvml: Any, mood: str, rule: str) -> None:
    code = f"""
from spark_rl.telemetry.nvml import NvmlSession
from spark_rl.telemetry.reading import Reading
from spark_rl.telemetry.watcher import findings_of
now = 0.0
session = NvmlSession(clock=lambda: now)
readings = []
for second in range(0, 200, 2):
    now = float(second)
    if second == 60:
        mood({mood!r})
    readings.append(Reading(now, now, gpus=session.answer().gpus))
print(json.dumps([notice.finding.rule for notice in findings_of(readings) if notice.state == "begin"]))
"""
    assert run_with_nvml("gb10", code) == [rule]
