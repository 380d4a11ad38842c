"""Machines: named classes, readings of real hosts, memory that is not what it seems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_rl.errors import ConfigError
from spark_rl.fit.budget import budget_of
from spark_rl.gpu_choice import GpuReading
from spark_rl.host import (
    detect_host,
    machine_class,
    machine_from_readings,
    machine_names,
    machine_of_size,
    parse_meminfo,
)
from spark_rl.units import GIB, KIB

GB10 = GpuReading("NVIDIA GB10", None, None, 1, "12.1")
MEMINFO = (
    "MemTotal: 127600748 kB\nMemFree: 7789944 kB\nMemAvailable: 118566368 kB\nCached: 90000000 kB\nDirty: 120 kB\n"
)


@pytest.mark.parametrize("name", ["dgx-spark", "spark", "GB10", "24", "24gb", "24 GiB", "RTX 4090", "H100", "no-gpu"])
def test_a_machine_goes_by_the_names_people_use(name: str) -> None:
    assert machine_class(name).name in machine_names()


def test_an_unknown_machine_names_the_nearest_and_all_others() -> None:
    with pytest.raises(ConfigError) as caught:
        machine_class("dgx-sprak")
    assert "dgx-spark" in (caught.value.hint or "")


def test_a_size_takes_the_speed_of_the_nearest_class() -> None:
    machine = machine_of_size(22)
    assert machine.device_total_bytes == 22 * GIB
    assert machine.bandwidth_bytes_per_second == machine_class("24").bandwidth_bytes_per_second


def test_memfree_is_not_what_a_gb10_has_left() -> None:
    machine = machine_from_readings(GB10, parse_meminfo(MEMINFO))
    assert machine.is_unified
    assert (machine.device_available_bytes or 0) / GIB == pytest.approx(113.1, abs=0.05)


def test_clean_page_cache_needs_no_dropping() -> None:
    (note,) = machine_from_readings(GB10, parse_meminfo(MEMINFO)).notes
    assert "MemFree is only 7.4 GiB" in note
    assert "only if an allocator insists" in note


def test_dirty_page_cache_is_to_be_written_first() -> None:
    dirty = MEMINFO.replace("Dirty: 120 kB", "Dirty: 31457280 kB")
    (note,) = machine_from_readings(GB10, parse_meminfo(dirty)).notes
    assert "30.0 GiB of it are dirty" in note and "sync" in note


@pytest.mark.cases
def test_logged_gb10_readings_give_113_gib(cases_dir: Path) -> None:
    rows = json.loads((cases_dir / "hw" / "gb10_readings.json").read_text())["gb10"]
    row = next(row for row in rows if "meminfo_MemAvailable_kB" in row)
    memory = parse_meminfo(
        f"MemTotal: {row['meminfo_MemTotal_kB']} kB\nMemAvailable: {row['meminfo_MemAvailable_kB']} kB\n"
    )
    machine = machine_from_readings(GB10, memory)
    assert machine.device_available_bytes == row["meminfo_MemAvailable_kB"] * KIB
    assert budget_of(machine).device_bytes / GIB == pytest.approx(101.1, abs=0.1)


def test_a_run_is_not_planned_into_the_floor() -> None:
    """34.0 GiB available fell to 12.7 in 1.5 s on a GB10: what is planned stays 12 GiB away."""
    low = parse_meminfo("MemTotal: 127600748 kB\nMemAvailable: 35651584 kB\n")
    assert budget_of(machine_from_readings(GB10, low)).device_bytes / GIB == pytest.approx(22.0, abs=0.01)


def test_unreadable_meminfo_is_unknown_not_zero() -> None:
    memory = parse_meminfo("MemTotal: lots kB\nnonsense\n")
    assert memory.total_bytes is None
    assert memory.available_bytes is None


def test_a_card_that_reports_memory_is_discrete() -> None:
    reading = GpuReading("NVIDIA GeForce RTX 4090", int(23.51 * GIB), int(22.52 * GIB), 1, "8.9")
    machine = machine_from_readings(reading, parse_meminfo("MemTotal: 65000000 kB\nMemAvailable: 60000000 kB\n"))
    assert machine.kind == "discrete"
    assert budget_of(machine).device_bytes == int(22.52 * GIB)


def test_this_host_is_read_without_an_error() -> None:
    assert detect_host().host_total_bytes
