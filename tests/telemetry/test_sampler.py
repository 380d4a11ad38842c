"""One pass over the sensors: what is read, what is missing and why, and what it costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from spark_rl.guard.effects import kill_worker
from spark_rl.telemetry import REASONS, Sampler, procfs, reading_from_row, sysfs
from spark_rl.telemetry.gpu_source import NvmlSource
from spark_rl.telemetry.nvml import FAST_SECONDS, GpuAnswer
from spark_rl.telemetry.reading import GpuReading
from spark_rl.telemetry.sampler import NoGpu
from spark_rl.units import GIB
from tests.run.conftest import wait_until

from .conftest import healthy_gb10, meminfo, write_tree


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Answers:
    """A GPU source that gives what it is told."""

    def __init__(self, answer: GpuAnswer) -> None:
        self.answer = answer

    def read(self) -> GpuAnswer:
        return self.answer

    def close(self) -> None:
        return None


def gb10_answer() -> GpuAnswer:
    gpu = GpuReading(0, "NVIDIA GB10", True, temperature_c=35.0, power_watts=11.17, utilization_percent=0.0)
    missing = {f"gpus.0.memory_{name}_bytes": "unified" for name in ("total", "available", "used")}
    return GpuAnswer((gpu,), missing, state="ok")


def test_unified_memory_is_mem_available_never_mem_free(fake_proc: Path, tmp_path: Path) -> None:
    """Field report 20: MemTotal 127600748, MemAvailable 118566368, MemFree 7789944 kB: 113.1 GiB are usable, not 7.4."""
    reading = Sampler(gpu=Answers(gb10_answer()), proc=fake_proc, sys=tmp_path).read()
    gpu = reading.gpus[0]
    assert gpu.memory_available_bytes is not None
    assert round(gpu.memory_available_bytes / GIB, 1) == 113.1
    assert gpu.memory_source == "MemAvailable"
    assert reading.headroom_bytes == gpu.memory_available_bytes
    assert not [path for path in reading.missing if "memory_available" in path]


def test_every_missing_value_has_a_known_reason_and_is_never_zero(fake_proc: Path, tmp_path: Path) -> None:
    row = Sampler(gpu=NoGpu(), proc=fake_proc, sys=tmp_path).read().to_row()
    for name, value in row["host"].items():
        assert (value is None) == (f"host.{name}" in row["missing"]), name
    assert set(row["missing"].values()) <= set(REASONS)


def test_a_container_without_proc_and_sys_gives_reasons_and_no_error(tmp_path: Path) -> None:
    reading = Sampler(gpu=NoGpu(), proc=tmp_path / "proc", sys=tmp_path / "sys", memory_elsewhere=dict).read()
    assert reading.headroom_bytes is None
    assert reading.missing["host.mem_available_bytes"] == "not_present"
    assert reading.missing["host.psi_memory_full_percent"] == "not_present"
    assert reading.missing["host.hottest_zone_c"] == "not_present"


def test_a_system_without_proc_has_its_memory_from_psutil(tmp_path: Path) -> None:
    """macOS and Windows: the light commands work there."""
    reading = Sampler(gpu=NoGpu(), proc=tmp_path / "proc", sys=tmp_path / "sys").read()
    assert reading.host.mem_available_bytes is not None
    assert reading.headroom_source == "MemAvailable"
    assert reading.missing["host.psi_memory_full_percent"] == "not_present"


def test_a_row_is_read_back_as_it_was_written(fake_proc: Path, tmp_path: Path) -> None:
    for reading in (Sampler(gpu=Answers(gb10_answer()), proc=fake_proc, sys=tmp_path).read(), healthy_gb10(12.0)):
        row = json.loads(json.dumps(reading.to_row(), allow_nan=False))
        assert reading_from_row(row).to_row() == row


def test_rates_need_two_passes(fake_proc: Path, tmp_path: Path) -> None:
    clock = Clock()
    sampler = Sampler(gpu=NoGpu(), proc=fake_proc, sys=tmp_path, clock=clock)
    assert sampler.read().missing["host.swap_in_bytes_per_second"] == "first_pass"
    (fake_proc / "vmstat").write_text("pswpin 1124\npswpout 200\n")
    (fake_proc / "stat").write_text("cpu  150 0 100 850 0 0 0 0 0 0\n")
    clock.now += 2.0
    host = sampler.read().host
    assert host.swap_in_bytes_per_second == 1024 * procfs.PAGE_BYTES / 2
    assert host.swap_out_bytes_per_second == 0.0
    assert host.cpu_percent == 50.0


def test_memory_is_read_at_every_pass_and_temperatures_when_their_time_is_over(fake_proc: Path, tmp_path: Path) -> None:
    zone = {"class/thermal/thermal_zone0/type": "acpitz", "class/thermal/thermal_zone0/temp": "50000"}
    sys_root = write_tree(tmp_path / "sys", zone)
    clock = Clock()
    sampler = Sampler(gpu=NoGpu(), proc=fake_proc, sys=sys_root, clock=clock)
    sampler.read()
    (sys_root / "class/thermal/thermal_zone0/temp").write_text("61000")
    (fake_proc / "meminfo").write_text(meminfo(127600748, 20_000_000, 1_000_000))
    clock.now += 0.1
    early = sampler.read()
    clock.now += 6.0
    late = sampler.read()
    assert (early.host.mem_available_bytes, early.host.hottest_zone_c) == (20_000_000 * 1024, 50.0)
    assert late.host.hottest_zone_c == 61.0


def test_spark_zones_are_matched_by_name_and_give_a_margin(tmp_path: Path) -> None:
    files = {}
    for number, milli in enumerate((40000, 81000, 52000)):
        base = f"class/thermal/thermal_zone{number}"
        files |= {
            f"{base}/type": "acpitz",
            f"{base}/temp": str(milli),
            f"{base}/trip_point_0_type": "critical",
            f"{base}/trip_point_0_temp": "104800",
        }
    files |= {
        "class/hwmon/hwmon3/name": "nvme", "class/hwmon/hwmon3/temp1_input": "46850",
        "class/hwmon/hwmon0/name": "acpi_fan", "class/hwmon/hwmon0/fan1_input": "3",
    }  # fmt: skip
    root = write_tree(tmp_path, files)
    hottest, margin = sysfs.read_hottest(sysfs.find_thermal_zones(root))
    chips = sysfs.find_hwmon(root)
    assert (hottest, margin) == (81.0, pytest.approx(23.8))
    assert sysfs.read_hwmon(chips, "temp") == 46.85
    assert sysfs.read_hwmon(chips, "fan") is None, "the ACPI fan's state is no speed"


@pytest.mark.parametrize("text", ["-273200", "255000", "", "n/a"])
def test_a_zone_that_reports_nonsense_is_left_out(tmp_path: Path, text: str) -> None:
    root = write_tree(
        tmp_path, {"class/thermal/thermal_zone0/type": "iwlwifi_1", "class/thermal/thermal_zone0/temp": text}
    )
    assert sysfs.read_hottest(sysfs.find_thermal_zones(root)) == (None, None)


@pytest.mark.parametrize(
    ("mount", "cgroup", "files", "left"),
    [
        ("cgroup2 /C cgroup2 rw 0 0", "0::/job", {"job/memory.max": "1000", "job/memory.current": "700", "job/memory.stat": "inactive_file 100\nactive_file 50\n"}, 450),
        ("cgroup /C cgroup rw,memory 0 0", "4:memory:/job", {"job/memory.limit_in_bytes": "1000", "job/memory.usage_in_bytes": "700", "job/memory.stat": "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n"}, 450),
        ("cgroup2 /C cgroup2 rw 0 0", "0::/outer/job", {"outer/memory.max": "900", "outer/memory.current": "800", "outer/job/memory.max": "max", "outer/job/memory.current": "10"}, 100),
        ("cgroup2 /C cgroup2 rw 0 0", "0::/not/visible/here", {"memory.max": "500", "memory.current": "100"}, 400),
    ],
    ids=["v2", "v1", "limit on a parent", "inside a container"],
)  # fmt: skip
def test_memory_cgroups_of_both_versions_are_ceilings(
    tmp_path: Path, mount: str, cgroup: str, files: dict[str, str], left: int
) -> None:
    root = write_tree(tmp_path / "cgroup", files)
    proc = write_tree(tmp_path / "proc", {"7/cgroup": cgroup + "\n", "7/mounts": mount.replace("/C", str(root)) + "\n"})
    groups = procfs.find_memory_groups(7, proc)
    assert [procfs.group_ceiling(group).available_bytes for group in groups] == [left]  # type: ignore[union-attr]


def test_a_cgroup_without_a_limit_is_no_ceiling(tmp_path: Path) -> None:
    root = write_tree(
        tmp_path / "cgroup", {"job/memory.limit_in_bytes": "9223372036854771712", "job/memory.usage_in_bytes": "700"}
    )
    proc = write_tree(
        tmp_path / "proc", {"7/cgroup": "4:memory:/job\n", "7/mounts": f"cgroup {root} cgroup rw,memory 0 0\n"}
    )
    assert procfs.find_memory_groups(7, proc) == []


def test_an_old_kernel_without_mem_available_gets_an_estimate() -> None:
    memory = procfs.parse_meminfo(b"MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 40 kB\nShmem: 15 kB\n")
    assert procfs.available_from_meminfo(memory) == 40 * 1024


SPAWN = """
import subprocess, sys
same = subprocess.Popen(["sleep", "60"])
apart = subprocess.Popen(["sleep", "60"], start_new_session=True)
print(same.pid, apart.pid, flush=True)
input()
"""


def test_the_processes_of_a_worker_are_found_and_killed_also_in_sessions_of_their_own() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SPAWN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as worker:
        assert worker.stdout is not None
        same, apart = map(int, worker.stdout.readline().split())
        assert sorted(procfs.family_of(worker.pid)) == sorted([worker.pid, same, apart])
        sampler = Sampler(gpu=NoGpu(), worker_pid=worker.pid)
        reading = sampler.read()
        assert kill_worker(worker.pid, (*sampler.members, os.getpid()))
    assert reading.worker is not None
    assert reading.worker.num_processes == 3
    assert (reading.worker.rss_bytes or 0) > 1_000_000
    for pid in (same, apart):
        wait_until(lambda pid=pid: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)  # type: ignore[misc]


def test_a_budget_is_a_ceiling_over_the_workers_memory() -> None:
    # The process of a whole test run holds gigabytes by now.
    limit = 64 * GIB
    sampler = Sampler(gpu=NoGpu(), worker_pid=os.getpid(), budget_bytes=limit)
    reading = sampler.read()
    budget = next(ceiling for ceiling in reading.ceilings if ceiling.name == "budget")
    assert reading.worker is not None
    assert budget.available_bytes == limit - (reading.worker.rss_bytes or 0)


def test_a_source_that_raises_costs_the_gpu_readings_only() -> None:
    def broken() -> object:
        raise RuntimeError("bindings of another planet")

    source = NvmlSource(broken, patience_seconds=5.0)  # type: ignore[arg-type]
    answer = source.read()
    assert answer.state == "driver_error"
    assert "another planet" in (answer.detail or "")


def test_the_driver_is_asked_no_more_often_than_its_figures_change() -> None:
    clock = Clock()
    asked: list[float] = []

    class Session:
        def answer(self) -> GpuAnswer:
            asked.append(clock.now)
            return GpuAnswer(state="ok")

    source = NvmlSource(Session, clock, patience_seconds=5.0)  # type: ignore[arg-type]
    for _ in range(21):
        source.read()
        clock.now += 0.05
    source.close()
    assert len(asked) <= 1 + 1.0 / FAST_SECONDS


def test_a_pass_costs_milliseconds_of_cpu_at_most() -> None:
    """The budget of design §10, with a margin of four for a loaded test machine; scripts/bench_telemetry measures it."""
    sampler = Sampler(worker_pid=os.getpid())
    sampler.read()
    costs = []
    for _ in range(200):
        started = time.process_time()
        sampler.read().to_row()
        costs.append(time.process_time() - started)
    assert sorted(costs)[100] < 0.008


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, spark_rl.telemetry, spark_rl.guard, spark_rl.guard.run_watch, spark_rl.doctor; print(sorted({'torch', 'numpy', 'transformers', 'trl'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
