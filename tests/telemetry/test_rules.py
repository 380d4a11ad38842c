"""Each fault of the field reports is named, and named once; healthy machines are not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spark_rl.telemetry.findings import Finding, Thresholds
from spark_rl.telemetry.reading import GpuReading, Reading
from spark_rl.telemetry.watcher import Watcher, findings_of
from spark_rl.units import GIB, MIB

from .conftest import at, healthy_gb10


def begun(readings: list[Reading], thresholds: Thresholds | None = None) -> list[str]:
    return [notice.finding.rule for notice in findings_of(readings, thresholds) if notice.state == "begin"]


def finding(readings: list[Reading], rule: str) -> Finding:
    return next(notice.finding for notice in findings_of(readings) if notice.finding.rule == rule)


def series(make: Callable[[float], Reading], seconds: int = 200, every: float = 2.0) -> list[Reading]:
    return [make(index * every) for index in range(int(seconds / every))]


def test_a_healthy_spark_gives_no_finding() -> None:
    assert begun(series(healthy_gb10, 1200)) == []


@pytest.mark.parametrize(
    ("celsius", "clock", "low_clock", "watts"),
    [
        (55, 2502, 2405, 38),
        (65, 2496, 2320, 41),
        (72, 2470, 2203, 50),
        (78, 2457, 2197, 75),
        (82, 2424, 2203, 87),
        (86, 2405, 2223, 101),
    ],
)
def test_no_bin_of_the_public_healthy_week_gives_a_finding(
    celsius: int, clock: int, low_clock: int, watts: int
) -> None:
    chance = random.Random(celsius)

    def make(seconds: float) -> Reading:
        mhz = chance.choice([clock, clock, clock - 10, low_clock])
        return healthy_gb10(
            seconds,
            temperature_c=float(celsius),
            margin_c=94.0 - celsius,
            sm_clock_mhz=float(mhz),
            power_watts=watts + chance.random(),
        )

    assert begun(series(make, 900)) == []


def test_hours_of_a_healthy_unit_give_no_finding() -> None:
    """Shaped as the public week: bins by their share, changing by the minute, read every 10 s, little memory free."""
    bins = (
        (55, 2502, 2405, 38, 68),
        (65, 2496, 2320, 38, 98),
        (72, 2470, 2203, 40, 100),
        (78, 2457, 2197, 45, 101),
        (82, 2424, 2203, 60, 101),
        (85, 2405, 2223, 60, 101),
    )

    def make(seconds: float) -> Reading:
        minute, now = random.Random(f"minute {int(seconds // 60)}"), random.Random(f"now {seconds}")
        celsius, clock, low, least, most = minute.choices(bins, (14, 271, 142, 104, 45, 11))[0]
        mhz = low if now.random() < 0.02 else clock - now.choice((0, 0, 6, 13))
        return healthy_gb10(
            seconds,
            temperature_c=float(celsius),
            margin_c=94.5 - celsius,
            sm_clock_mhz=float(mhz),
            power_watts=now.uniform(least, most),
        )

    assert begun(series(make, 20_000, 10.0)) == []


@pytest.mark.parametrize(("mhz", "watts"), [(799, 19.5), (721, 22.0), (630, 15.0), (2400, 18.0)])
def test_the_stuck_low_state_is_named_with_its_remedy(mhz: float, watts: float) -> None:
    readings = series(lambda s: healthy_gb10(s, sm_clock_mhz=mhz + s % 7, power_watts=watts + (s % 5) / 10, temperature_c=48.0, margin_c=46.0), 400)  # fmt: skip
    assert begun(readings) == ["stuck_low"]
    assert "60 s" in finding(readings, "stuck_low").advice


def test_a_slow_clock_with_a_reason_is_not_stuck_low() -> None:
    readings = series(
        lambda s: healthy_gb10(
            s, sm_clock_mhz=799.0 + s % 7, temperature_c=48.0, event_reasons=("HwPowerBrakeSlowdown",)
        )
    )
    assert begun(readings) == ["power_cap"]


def test_an_idle_gpu_at_208_mhz_is_not_stuck_low() -> None:
    readings = series(
        lambda s: healthy_gb10(s, sm_clock_mhz=208.0, power_watts=4.2, utilization_percent=0.0, temperature_c=38.0)
    )
    assert begun(readings) == []


def test_a_card_held_at_a_third_of_its_clock_is_stuck_low() -> None:
    card = GpuReading(
        0, "NVIDIA GeForce RTX 4090", memory_total_bytes=24 * GIB, utilization_percent=97.0, temperature_c=41.0, margin_c=49.0,
        sm_clock_mhz=1005.0, max_sm_clock_mhz=3105.0, event_reasons=(), power_watts=90.0,
    )  # fmt: skip
    assert begun(series(lambda s: at(s, 50, gpu=replace(card, power_watts=90 + s % 3)))) == ["stuck_low"]


def test_thermal_throttling_by_the_drivers_word() -> None:
    readings = series(lambda s: healthy_gb10(s, temperature_c=93.0, margin_c=1.0, event_reasons=("SwThermalSlowdown",)))
    assert begun(readings) == ["thermal_throttling"]


def test_thermal_throttling_by_the_accumulated_counter_alone() -> None:
    readings = series(lambda s: healthy_gb10(s, thermal_slowed_us=int(903158 + max(0, s - 60) * 300_000)))
    assert begun(readings) == ["thermal_throttling"]
    assert finding(readings, "thermal_throttling").evidence["share_of_time_slowed"] >= 0.05


def test_thermal_throttling_seen_as_a_clock_that_falls_at_a_small_margin() -> None:
    """No reason is given: 2223 MHz idle, 695-890 MHz at 96 % (hasso5703/dgx-spark-qwen38#8), hot."""

    def make(seconds: float) -> Reading:
        late = seconds > 100
        return healthy_gb10(
            seconds,
            sm_clock_mhz=(870.0 if late else 2223.0) + seconds % 7,
            temperature_c=92.0 if late else 70.0,
            margin_c=2.0 if late else 24.0,
        )

    assert begun(series(make, 300)) == ["thermal_throttling"]


def test_a_finding_is_said_once_and_has_an_end() -> None:
    def make(seconds: float) -> Reading:
        throttled = 60 <= seconds < 200
        flapping = throttled and int(seconds / 2) % 5 != 0
        return healthy_gb10(
            seconds, event_reasons=("SwThermalSlowdown",) if flapping else (), margin_c=2.0 if throttled else 27.0
        )

    notices = [(n.state, n.finding.rule) for n in findings_of(series(make, 400))]
    assert notices == [("begin", "thermal_throttling"), ("end", "thermal_throttling")]


def test_a_frozen_sensor_is_named() -> None:
    frozen = healthy_gb10(0.0).gpus[0]
    readings = series(lambda s: at(s, 40, gpu=replace(frozen, answered_at=s)))
    assert begun(readings) == ["frozen_sensor"]


def test_an_energy_counter_that_stands_still_under_work_is_a_frozen_sensor() -> None:
    assert begun(series(lambda s: healthy_gb10(s, energy_joules=5000.0))) == ["frozen_sensor"]


def test_an_idle_gpu_whose_readings_do_not_move_is_not_frozen() -> None:
    idle = replace(healthy_gb10(0.0).gpus[0], utilization_percent=0.0, sm_clock_mhz=208.0, power_watts=4.0)
    assert begun(series(lambda s: at(s, 40, gpu=replace(idle, answered_at=s)))) == []


@pytest.mark.parametrize("state", ["driver_down", "driver_hangs"])
def test_a_driver_that_is_gone_is_named(state: str) -> None:
    def make(seconds: float) -> Reading:
        reading = healthy_gb10(seconds)
        return reading if seconds < 60 else replace(reading, missing={"gpus": state})

    assert begun(series(make)) == ["dead_sensor"]


def test_a_machine_that_never_had_a_gpu_has_no_dead_sensor() -> None:
    assert begun(series(lambda s: at(s, 20, missing={"gpus": "no_driver", "host.nvme_c": "not_present"}))) == []


def test_one_sensor_that_stops_answering_is_named() -> None:
    def make(seconds: float) -> Reading:
        reading = healthy_gb10(seconds, temperature_c=68.0 if seconds < 60 else None)
        return reading if seconds < 60 else replace(reading, missing={"gpus.0.temperature_c": "driver_error"})

    readings = series(make)
    assert begun(readings) == ["dead_sensor"]
    assert "gpus.0.temperature_c" in finding(readings, "dead_sensor").summary


def test_a_temperature_of_255_is_not_believed() -> None:
    assert "dead_sensor" in begun(series(lambda s: healthy_gb10(s, temperature_c=255.0, margin_c=None)))


def test_memory_that_reaches_the_floor_in_minutes_is_told_with_the_time() -> None:
    readings = series(lambda s: at(s, 30 - s / 10), 140)
    found = finding(readings, "memory_falling")
    assert found.severity == "severe"
    assert 0 < found.evidence["seconds_to_floor"] <= 120


def test_a_leak_over_hours_is_told_an_hour_ahead() -> None:
    """5 GiB an hour from 13 GiB: the floor of 8 GiB is an hour away."""
    readings = series(lambda s: at(s, 12.9 - s * 5 / 3600 + (0.3 if int(s) % 20 < 10 else 0.0)), 600)
    found = finding(readings, "memory_falling")
    assert found.severity == "warning"
    assert found.evidence["bytes_per_second"] == pytest.approx(5 * GIB / 3600, rel=0.2)


def test_a_run_that_breathes_does_not_leak() -> None:
    assert begun(series(lambda s: at(s, 40 if s % 30 < 15 else 14), 900)) == []


def test_page_cache_is_explained_not_cleared() -> None:
    """A composite of two reports: 7.4 GiB free, 113 GiB available."""
    host = {"mem_free_bytes": 7789944 * 1024, "page_cache_bytes": 100 * GIB, "dirty_bytes": 0}
    gpu = healthy_gb10(0.0).gpus[0]
    readings = series(
        lambda s: at(
            s, 113.07, host=host, gpu=replace(gpu, power_watts=40 + s % 7, answered_at=s, energy_joules=1e6 + s)
        )
    )
    assert begun(readings) == ["page_cache"]
    found = finding(readings, "page_cache")
    assert found.severity == "info"
    assert "113.07 GiB can be had" in found.summary
    assert "nothing to do" in found.advice
    assert "sync first" not in found.advice


def test_page_cache_on_a_machine_with_a_card_of_its_own_is_ordinary() -> None:
    host = {"mem_free_bytes": 2 * GIB, "page_cache_bytes": 100 * GIB}
    assert begun(series(lambda s: at(s, 113, host=host))) == []


def test_swap_thrash_is_named() -> None:
    host = {
        "swap_in_bytes_per_second": 300.0 * MIB,
        "swap_out_bytes_per_second": 250.0 * MIB,
        "psi_memory_full_percent": 40.0,
    }
    assert "swap_thrash" in begun(series(lambda s: at(s, 14, host=host)))


def test_swapping_out_alone_is_not_thrash() -> None:
    assert begun(series(lambda s: at(s, 40, host={"swap_out_bytes_per_second": 300.0 * MIB}))) == []


def test_a_co_tenant_on_the_gpu_is_named_by_its_process() -> None:
    def make(seconds: float) -> Reading:
        if seconds < 60:
            return healthy_gb10(seconds)
        return healthy_gb10(seconds, other_memory_bytes=67012 * MIB, other_process="llama-server (114687)")

    readings = series(make)
    assert begun(readings) == ["co_tenant"]
    assert "llama-server (114687)" in finding(readings, "co_tenant").summary


def test_a_co_tenant_on_the_shared_memory_is_seen_by_difference() -> None:
    gpu = healthy_gb10(0.0).gpus[0]

    def make(seconds: float) -> Reading:
        return at(
            seconds,
            40 - max(0.0, seconds - 60) / 10,
            gpu=replace(gpu, power_watts=40 + seconds % 7, answered_at=seconds, energy_joules=1e6 + seconds),
        )

    assert "co_tenant" in begun(series(make, 140))


@pytest.mark.parametrize(("gap", "used"), [(627.0, 99.8), (7196.0, 93.7)])
def test_a_gap_in_the_telemetry_is_told_with_the_memory_before_it(gap: float, used: float) -> None:
    """The two gaps of AEON-7/vllm-ultimate-dgx-spark#9."""
    left = 121.69 * (1 - used / 100)
    readings = [at(second, left) for second in range(0, 60, 2)] + [
        at(58 + gap + second, 60.0) for second in range(0, 20, 2)
    ]
    found = finding(readings, "telemetry_gap")
    assert found.evidence["gap_seconds"] == gap
    assert found.evidence["used_percent_before"] == pytest.approx(used, abs=0.1)
    assert found.severity == "severe"


def test_a_full_disk_is_told_before_it_is_full() -> None:
    assert begun(series(lambda s: at(s, 40, host={"disk_free_bytes": GIB}), 20)) == ["disk_low"]


def test_each_gpu_of_two_is_judged_by_itself() -> None:
    def make(seconds: float) -> Reading:
        first = healthy_gb10(seconds)
        return replace(
            first,
            gpus=(
                first.gpus[0],
                replace(first.gpus[0], index=1, sm_clock_mhz=799.0, power_watts=19.0 + seconds % 3, temperature_c=50.0),
            ),
        )

    readings = series(make)
    assert begun(readings) == ["stuck_low"]
    assert finding(readings, "stuck_low").subject == "gpu1"


def test_the_window_does_not_grow() -> None:
    watcher = Watcher()
    for second in range(0, 4000, 2):
        watcher.observe(healthy_gb10(float(second)))
    assert len(watcher._window) <= 334


def test_the_recorded_gb10_readings_of_the_cases_are_judged(cases_dir: Path) -> None:
    """sm clock 890, 890, 858, 695 MHz at 96 % after 2223 idle; cool, no reason: the stuck-low state."""
    rows = {row["source"]: row for row in json.loads((cases_dir / "hw" / "gb10_readings.json").read_text())["gb10"]}
    clocks = rows["hasso5703/dgx-spark-qwen38#8"]["sm_clock_at_96pct_mhz"]
    readings = series(
        lambda s: healthy_gb10(
            s, sm_clock_mhz=float(clocks[int(s / 2) % 4]), power_watts=22.0 + s % 3, temperature_c=52.0
        )
    )
    assert begun(readings) == ["stuck_low"]
