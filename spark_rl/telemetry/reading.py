"""What one sensor pass says: frozen values, one timestamp, and for each value that is missing the reason why.

In: nothing. Out: `Reading` and its parts, and the row of telemetry.jsonl (`Reading.to_row`, `reading_from_row`).
A value is a number or None; None always has a reason code in `Reading.missing`. Zero means zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

SCHEMA_VERSION = 1

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "not_supported": "this device does not measure it (the driver says so)",
        "unified": "unified memory: the device has no memory of its own, see the host's MemAvailable",
        "always_zero": "this device always reports 0 here, so the figure means nothing",
        "no_driver": "no NVIDIA driver library on this machine",
        "no_device": "the driver is there, but it sees no GPU",
        "driver_down": "the NVIDIA driver answered with an error and is being asked again",
        "driver_hangs": "the NVIDIA driver has not answered in time",
        "driver_error": "the driver failed on this one question",
        "driver_too_old": "this driver does not know the question",
        "starting": "not asked yet",
        "stale": "the last answer is too old to be shown",
        "no_permission": "not readable for this user",
        "not_present": "this machine has no such sensor",
        "first_pass": "a rate: needs two passes",
        "no_run": "no worker is watched",
        "not_used": "the run uses no GPU",
        "pid_namespace": "the driver names processes of another PID namespace (a container)",
        "not_recorded": "the recording does not hold it",
    }
)
"""Every reason code that may stand in `Reading.missing`, in words."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One limit that host memory can run into, and what is left below it."""

    name: str
    """"MemAvailable", "cgroup", "address space" or "budget"."""
    limit_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class HostReading:
    """The machine's own memory, pressure and processor."""

    mem_total_bytes: int | None = None
    """MemTotal, or what a container sees as such."""
    mem_available_bytes: int | None = None
    """MemAvailable: what can be had without swapping. The truth on unified memory."""
    mem_free_bytes: int | None = None
    """MemFree: shown only to explain a full page cache."""
    page_cache_bytes: int | None = None
    """Cached + Buffers - Shmem: file pages the kernel can drop."""
    dirty_bytes: int | None = None
    """Dirty + Writeback: page cache that must reach the disk first."""
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_in_bytes_per_second: float | None = None
    swap_out_bytes_per_second: float | None = None
    psi_memory_some_percent: float | None = None
    """Share of the last 10 s in which some task waited for memory."""
    psi_memory_full_percent: float | None = None
    """Share of the last 10 s in which every task waited for memory."""
    cpu_percent: float | None = None
    """Share of all cores that was busy since the last pass."""
    hottest_zone_c: float | None = None
    hottest_zone_margin_c: float | None = None
    """Degrees below that zone's critical trip point."""
    nvme_c: float | None = None
    fan_rpm: float | None = None
    disk_free_bytes: int | None = None
    """Free space where the run writes."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU. Names follow NVML."""

    index: int
    name: str | None = None
    unified: bool = False
    """True when the device shares the host's memory (GB10, Thor, Orin)."""
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_source: str | None = None
    """"nvml", or "MemAvailable" on unified memory."""
    run_memory_bytes: int | None = None
    """Held by the run's own processes on this GPU."""
    other_memory_bytes: int | None = None
    """Held by every other process on this GPU."""
    other_process: str | None = None
    """The largest of the others: "name (pid)"."""
    utilization_percent: float | None = None
    memory_utilization_percent: float | None = None
    """Share of time the memory controller was busy: a counter, not bytes. None on GB10."""
    temperature_c: float | None = None
    margin_c: float | None = None
    """Degrees below the temperature at which the driver starts to slow the GPU."""
    memory_temperature_c: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    event_reasons: tuple[str, ...] | None = None
    """Why the clock is below its maximum now, in NVML's names; () = no reason given."""
    power_capped_us: int | None = None
    """Accumulated time slowed by the power cap."""
    thermal_slowed_us: int | None = None
    """Accumulated time slowed by heat, software and hardware."""
    energy_joules: float | None = None
    """Since the driver was loaded."""
    pstate: int | None = None
    fan_percent: float | None = None
    answered_at: float | None = None
    """Monotonic seconds of the driver's last answer; shows a hung driver."""


@dataclass(frozen=True, slots=True)
class WorkerReading:
    """The processes of the run."""

    pid: int
    num_processes: int = 0
    rss_bytes: int | None = None
    """Resident memory of the worker's process group, shared pages counted once per process."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass over all sensors."""

    t: float
    """UTC seconds."""
    monotonic: float
    """Seconds of a clock that never jumps; differences of readings use it."""
    host: HostReading = field(default_factory=HostReading)
    gpus: tuple[GpuReading, ...] = ()
    worker: WorkerReading | None = None
    ceilings: tuple[Ceiling, ...] = ()
    """Everything host memory can run into, tightest first."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Path of a value that is None ("host.nvme_c", "gpus.0.power_limit_watts") -> reason code of `REASONS`."""

    @property
    def headroom_bytes(self) -> int | None:
        """Host memory left below the tightest ceiling."""
        return self.ceilings[0].available_bytes if self.ceilings else None

    @property
    def headroom_source(self) -> str | None:
        return self.ceilings[0].name if self.ceilings else None

    @property
    def unified(self) -> bool:
        return any(gpu.unified for gpu in self.gpus)

    @property
    def heat_margin_c(self) -> float | None:
        """The smallest known distance to a temperature at which this machine slows or stops itself. The host's zones count
        where GPU and processor are one chip; a laptop's processor may well live three degrees below its limit."""
        margins = [gpu.margin_c for gpu in self.gpus if gpu.margin_c is not None]
        if self.unified and self.host.hottest_zone_margin_c is not None:
            margins.append(self.host.hottest_zone_margin_c)
        return min(margins) if margins else None

    def reason(self, path: str) -> str | None:
        """Why the value at `path` is missing, in words; None when it is there."""
        code = self.missing.get(path)
        return None if code is None else REASONS.get(code, code)

    def to_row(self) -> dict[str, Any]:
        """The row of telemetry.jsonl: JSON values only, unknown = null, reasons under "missing"."""
        return {
            "v": SCHEMA_VERSION,
            "t": round(self.t, 3),
            "monotonic": round(self.monotonic, 3),
            "headroom_bytes": self.headroom_bytes,
            "headroom_source": self.headroom_source,
            "host": _as_row(self.host),
            "gpus": [_as_row(gpu) for gpu in self.gpus],
            "worker": None if self.worker is None else _as_row(self.worker),
            "ceilings": [_as_row(ceiling) for ceiling in self.ceilings],
            "missing": dict(self.missing),
        }


_FIELD_NAMES = {
    kind: tuple(item.name for item in fields(kind)) for kind in (HostReading, GpuReading, WorkerReading, Ceiling)
}


def _as_row(part: HostReading | GpuReading | WorkerReading | Ceiling) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name in _FIELD_NAMES[type(part)]:
        value = getattr(part, name)
        if isinstance(value, float):
            value = round(value, 3)
        elif isinstance(value, tuple):
            value = list(value)
        row[name] = value
    return row


def reading_from_row(row: Mapping[str, Any]) -> Reading:
    """The reading that `to_row` wrote. Keys it does not know are left out; keys that are absent become None with
    the reason "not_recorded". Raises ValueError for a row without a time or of a newer schema."""
    version = row.get("v", SCHEMA_VERSION)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise ValueError(f"telemetry row of schema {version}, this version reads {SCHEMA_VERSION}")
    moment = row.get("t")
    if isinstance(moment, bool) or not isinstance(moment, (int, float)):
        raise ValueError("telemetry row without a time `t`")
    missing = dict(row.get("missing") or {})
    host = _from_row(HostReading, row.get("host") or {}, "host", missing)
    gpus = []
    for position, item in enumerate(row.get("gpus") or ()):
        values = {"index": position, **item}
        if values.get("event_reasons") is not None:
            values["event_reasons"] = tuple(values["event_reasons"])
        gpus.append(_from_row(GpuReading, values, f"gpus.{values['index']}", missing))
    worker = _from_row(WorkerReading, row["worker"], "worker", missing) if row.get("worker") else None
    ceilings: Sequence[Ceiling] = [
        Ceiling(**{name: item[name] for name in _FIELD_NAMES[Ceiling]}) for item in row.get("ceilings") or ()
    ]
    if not ceilings and host.mem_available_bytes is not None:
        total = host.mem_total_bytes or host.mem_available_bytes
        ceilings = [Ceiling("MemAvailable", total, host.mem_available_bytes)]
    return Reading(
        t=float(moment),
        monotonic=float(row.get("monotonic", moment)),
        host=host,
        gpus=tuple(gpus),
        worker=worker,
        ceilings=tuple(ceilings),
        missing=missing,
    )


def _from_row(kind: type[Any], values: Mapping[str, Any], path: str, missing: dict[str, str]) -> Any:
    known = _FIELD_NAMES[kind]
    for name in known:
        if name not in values and kind is not WorkerReading:
            missing.setdefault(f"{path}.{name}", "not_recorded")
    return kind(**{name: value for name, value in values.items() if name in known})
