"""One pass over all sensors of this machine: `Sampler().read() -> Reading`.

In: roots of /proc and /sys, a clock, a source of GPU answers, the process group of the worker (all injectable). Out: a `Reading`.
Memory is read in every pass; everything else when its time-to-live is over, so a pass every 50 ms costs little more
than one every 2 s. Names and totals are asked for once. A sensor that fails costs its own value only.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from spark_rl.telemetry import procfs, sysfs
from spark_rl.telemetry.gpu_source import NvmlSource
from spark_rl.telemetry.nvml import GpuAnswer, NvmlSession
from spark_rl.telemetry.reading import Ceiling, GpuReading, HostReading, Reading, WorkerReading

PRESSURE_SECONDS = 0.9
TEMPERATURE_SECONDS = 5.0
DISK_SECONDS = 10.0
GROUP_SECONDS = 10.0
"""Who belongs to the worker's process group, and which limits stand above it."""


class GpuSource(Protocol):
    """Whatever answers for the GPUs: the real driver, or a recording."""

    def read(self) -> GpuAnswer: ...

    def close(self) -> None: ...


class NoGpu:
    """Stands for a machine whose GPUs nobody wants to hear about."""

    def __init__(self, state: str = "no_driver") -> None:
        self._state = state

    def read(self) -> GpuAnswer:
        return GpuAnswer(state=self._state)

    def close(self) -> None:
        return None


@dataclass
class _Kept:
    """A group of values with the time at which they were read."""

    seconds: float
    at: float = float("-inf")
    values: Any = None
    missing: dict[str, str] | None = None


class Sampler:
    """Reads this machine. Not for use from two threads at once."""

    def __init__(
        self,
        *,
        gpu: GpuSource | None = None,
        proc: Path = Path("/proc"),
        sys: Path = sysfs.SYS,
        disk: Path | None = None,
        worker_pid: int | None = None,
        budget_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        memory_elsewhere: Callable[[], dict[str, int]] = procfs.memory_elsewhere,
        gpu_uuid: str | None = None,
    ) -> None:
        """`disk`: where the run writes. `worker_pid`: see `watch`. `budget_bytes`: host memory the run may use at most, beside what the kernel
        enforces. `gpu_uuid`: the run's GPU where the machine has several; the others are not read. Nothing is opened or asked
        before the first `read`."""
        self._proc = proc
        self._sys = sys
        self._disk = disk
        self._budget_bytes = budget_bytes
        self._clock = clock
        self._wall_clock = wall_clock
        self._memory_elsewhere = memory_elsewhere
        self._worker_pid = worker_pid
        self._members: list[int] = [] if worker_pid is None else [worker_pid]
        self._groups: list[procfs.MemoryGroup] = []
        self._address_limits: dict[int, int] = {}
        self._meminfo = procfs.OpenFile(proc / "meminfo")
        self._vmstat = procfs.OpenFile(proc / "vmstat", 65536)
        self._pressure = procfs.OpenFile(proc / "pressure" / "memory", 1024)
        self._stat = procfs.OpenFile(proc / "stat", 65536)
        self._zones: list[sysfs.ThermalZone] | None = None
        self._hwmon: list[sysfs.HwmonFile] = []
        self._kept = {
            "pressure": _Kept(PRESSURE_SECONDS),
            "heat": _Kept(TEMPERATURE_SECONDS),
            "disk": _Kept(DISK_SECONDS),
            "group": _Kept(GROUP_SECONDS),
        }
        self._last_swap: tuple[float, dict[str, int]] | None = None
        self._last_cpu: tuple[int, int] | None = None
        self._gpu: GpuSource = gpu or NvmlSource(
            lambda: NvmlSession(clock=clock, run_pids=lambda: tuple(self._members), only_uuid=gpu_uuid), clock
        )
        self.last_gpu_answer = GpuAnswer()
        """The driver's newest answer with its versions and identities, for `doctor` and host.json."""

    def watch(self, pid: int) -> None:
        """From now on the process group of `pid` and all that descends from it is the run: its memory, its limits."""
        self._worker_pid = pid
        self._members = [pid]
        self._kept["group"].at = float("-inf")

    def read(self) -> Reading:
        """One pass. Never raises for anything a sensor does."""
        now = self._clock()
        missing: dict[str, str] = {}
        text = self._meminfo.read()
        memory = procfs.parse_meminfo(text) if text is not None else self._memory_elsewhere()
        worker = self._read_worker(now, missing)
        answer = self.last_gpu_answer = self._gpu.read()
        host = self._read_host(now, memory, missing)
        gpus = tuple(self._on_host_memory(gpu, host) for gpu in answer.gpus)
        missing.update(answer.missing)
        for gpu in gpus:
            if gpu.unified and gpu.memory_total_bytes is not None:
                for name in ("memory_total_bytes", "memory_available_bytes", "memory_used_bytes"):
                    missing.pop(f"gpus.{gpu.index}.{name}", None)
        if answer.state != "ok":
            missing["gpus"] = answer.state
        return Reading(
            t=self._wall_clock(),
            monotonic=now,
            host=host,
            gpus=gpus,
            worker=worker,
            ceilings=self._ceilings(host, worker),
            missing=missing,
        )

    @property
    def members(self) -> tuple[int, ...]:
        """The run's processes as they were found last."""
        return tuple(self._members)

    def close(self) -> None:
        for file in (self._meminfo, self._vmstat, self._pressure, self._stat):
            file.close()
        self._gpu.close()

    def _due(self, name: str, now: float) -> _Kept | None:
        kept = self._kept[name]
        if now - kept.at < kept.seconds:
            return None
        kept.at = now
        return kept

    def _read_host(self, now: float, memory: dict[str, int], missing: dict[str, str]) -> HostReading:
        for name, read in (("pressure", self._read_pressure), ("heat", self._read_heat), ("disk", self._read_disk)):
            kept = self._due(name, now)
            if kept is not None:
                reasons: dict[str, str] = {}
                kept.values, kept.missing = read(now, reasons), reasons
            missing.update(self._kept[name].missing or {})
        total = memory.get("MemTotal")
        if not memory:
            for name in (
                "mem_total_bytes",
                "mem_available_bytes",
                "mem_free_bytes",
                "page_cache_bytes",
                "dirty_bytes",
                "swap_total_bytes",
                "swap_used_bytes",
            ):
                missing[f"host.{name}"] = "not_present"
        swap_total = memory.get("SwapTotal")
        return HostReading(
            mem_total_bytes=total,
            mem_available_bytes=procfs.available_from_meminfo(memory),
            mem_free_bytes=memory.get("MemFree"),
            page_cache_bytes=None
            if not memory
            else max(0, memory.get("Cached", 0) + memory.get("Buffers", 0) - memory.get("Shmem", 0)),
            dirty_bytes=None if not memory else memory.get("Dirty", 0) + memory.get("Writeback", 0),
            swap_total_bytes=swap_total,
            swap_used_bytes=None if swap_total is None else swap_total - memory.get("SwapFree", swap_total),
            **self._kept["pressure"].values,
            **self._kept["heat"].values,
            **self._kept["disk"].values,
        )

    def _read_pressure(self, now: float, missing: dict[str, str]) -> dict[str, float | None]:
        some, full = procfs.parse_pressure(self._pressure.read() or b"")
        for name, value in (("psi_memory_some_percent", some), ("psi_memory_full_percent", full)):
            if value is None:
                missing[f"host.{name}"] = "not_present"
        swapped = procfs.parse_vmstat(self._vmstat.read() or b"")
        rates: dict[str, float | None] = {"swap_in_bytes_per_second": None, "swap_out_bytes_per_second": None}
        if not swapped:
            missing.update(dict.fromkeys((f"host.{name}" for name in rates), "not_present"))
        elif self._last_swap is None or now <= self._last_swap[0]:
            missing.update(dict.fromkeys((f"host.{name}" for name in rates), "first_pass"))
        else:
            seconds = now - self._last_swap[0]
            for name, key in (("swap_in_bytes_per_second", "pswpin"), ("swap_out_bytes_per_second", "pswpout")):
                rates[name] = (swapped.get(key, 0) - self._last_swap[1].get(key, 0)) * procfs.PAGE_BYTES / seconds
        if swapped:
            self._last_swap = (now, swapped)
        busy: float | None = None
        ticks = procfs.parse_cpu_times(self._stat.read() or b"")
        if ticks is not None and self._last_cpu is not None and ticks[1] > self._last_cpu[1]:
            busy = 100 * (ticks[0] - self._last_cpu[0]) / (ticks[1] - self._last_cpu[1])
        else:
            missing["host.cpu_percent"] = "not_present" if ticks is None else "first_pass"
        self._last_cpu = ticks
        return {"psi_memory_some_percent": some, "psi_memory_full_percent": full, "cpu_percent": busy, **rates}

    def _read_heat(self, now: float, missing: dict[str, str]) -> dict[str, float | None]:
        if self._zones is None:
            self._zones = sysfs.find_thermal_zones(self._sys)
            self._hwmon = sysfs.find_hwmon(self._sys)
        hottest, margin = sysfs.read_hottest(self._zones)
        values = {
            "hottest_zone_c": hottest,
            "hottest_zone_margin_c": margin,
            "nvme_c": sysfs.read_hwmon(self._hwmon, "temp"),
            "fan_rpm": sysfs.read_hwmon(self._hwmon, "fan"),
        }
        missing.update({f"host.{name}": "not_present" for name, value in values.items() if value is None})
        return values

    def _read_disk(self, now: float, missing: dict[str, str]) -> dict[str, int | None]:
        free: int | None = None
        if self._disk is None:
            missing["host.disk_free_bytes"] = "no_run"
        else:
            try:
                free = shutil.disk_usage(self._disk).free
            except OSError:
                missing["host.disk_free_bytes"] = "not_present"
        return {"disk_free_bytes": free}

    def _read_worker(self, now: float, missing: dict[str, str]) -> WorkerReading | None:
        pid = self._worker_pid
        if self._due("group", now) is not None:
            watched = pid if pid is not None else os.getpid()
            if pid is not None:
                self._members = procfs.family_of(pid, self._proc) or [pid]
            self._groups = procfs.find_memory_groups(watched, self._proc)
            limits = {member: procfs.address_space_limit(member, self._proc) for member in self._members}
            # A child with a limit of its own (a reward helper, a sandbox) is meant to die of it alone: only the limit
            # that the run itself lives under is a ceiling of the run.
            own = limits.get(watched)
            self._address_limits = {member: own for member, limit in limits.items() if own is not None and limit == own}
        if pid is None:
            missing["worker"] = "no_run"
            return None
        resident, alive = 0, 0
        for member in self._members:
            sizes = procfs.process_sizes(member, self._proc)
            if sizes is not None:
                alive += 1
                resident += sizes[1]
        if not alive:
            missing["worker.rss_bytes"] = "not_present"
        return WorkerReading(pid, alive, resident if alive else None)

    def _ceilings(self, host: HostReading, worker: WorkerReading | None) -> tuple[Ceiling, ...]:
        found: list[Ceiling] = []
        if host.mem_available_bytes is not None:
            found.append(
                Ceiling("MemAvailable", host.mem_total_bytes or host.mem_available_bytes, host.mem_available_bytes)
            )
        found += [ceiling for group in self._groups if (ceiling := procfs.group_ceiling(group)) is not None]
        for member, limit in self._address_limits.items():
            sizes = procfs.process_sizes(member, self._proc)
            if sizes is not None:
                found.append(Ceiling("address space", limit, max(0, limit - sizes[0])))
        if self._budget_bytes is not None and worker is not None and worker.rss_bytes is not None:
            found.append(Ceiling("budget", self._budget_bytes, max(0, self._budget_bytes - worker.rss_bytes)))
        return procfs.tightest_first(found)

    @staticmethod
    def _on_host_memory(gpu: GpuReading, host: HostReading) -> GpuReading:
        """A device that shares the host's memory has the host's figures, by MemAvailable."""
        total, available = host.mem_total_bytes, host.mem_available_bytes
        if not gpu.unified or total is None or available is None:
            return gpu
        return replace(
            gpu,
            memory_total_bytes=total,
            memory_available_bytes=available,
            memory_used_bytes=total - available,
            memory_source="MemAvailable",
        )
