"""The GPU's own readings through pynvml: `NvmlSession.answer()`, one pass over every device.

In: nothing (pynvml finds libnvidia-ml.so.1), or another module with pynvml's functions. Out: the readings, the reason
codes of what is missing, and the state of the driver in words. May hang as long as the driver does: `gpu_source` calls it
from a thread of its own. Each question stands alone: one that fails leaves the others. What a device does not know is asked once.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from spark_rl.telemetry import procfs
from spark_rl.telemetry.reading import GpuReading

FAST_SECONDS = 0.45
"""Utilisation, power, clocks: the driver itself refreshes them every 100-1000 ms, so 2 Hz is the most that says anything."""
SLOW_SECONDS = 2.0
"""Temperatures, accumulated counters and the process list change slowly or cost more."""
RETRY_SECONDS = 10.0
"""After the driver went down it is initialised anew at this pace; a missing library is looked for only once."""

UNIFIED_NAMES = ("GB10", "Thor", "Orin", "N1X")
"""Parts of device names that share the host's memory. Memory that is not supported, or 0 bytes in all, says the same."""

EVENT_REASON_BITS: tuple[tuple[int, str], ...] = (
    (0x001, "GpuIdle"),
    (0x002, "ApplicationsClocksSetting"),
    (0x004, "SwPowerCap"),
    (0x008, "HwSlowdown"),
    (0x010, "SyncBoost"),
    (0x020, "SwThermalSlowdown"),
    (0x040, "HwThermalSlowdown"),
    (0x080, "HwPowerBrakeSlowdown"),
    (0x100, "DisplayClockSetting"),
)
"""nvmlClocksEventReasons of nvml.h."""

_FATAL = {1, 9, 15, 16, 17, 999}
"""UNINITIALIZED, DRIVER_NOT_LOADED, GPU_IS_LOST, RESET_REQUIRED, OPERATING_SYSTEM, UNKNOWN: the whole driver is in doubt."""
_REASON_OF_ERROR = {
    3: "not_supported",
    4: "no_permission",
    9: "no_driver",
    12: "no_driver",
    13: "driver_too_old",
    21: "not_supported",
    6: "no_device",
}


@dataclass(frozen=True)
class GpuIdentity:
    """What never changes while the driver is up; asked once."""

    index: int
    name: str | None
    uuid: str | None
    compute_capability: tuple[int, int] | None
    memory_total_bytes: int | None
    unified: bool
    display_active: bool | None
    max_sm_clock_mhz: float | None
    slowdown_c: float | None
    power_limit_watts: float | None


@dataclass(frozen=True)
class GpuAnswer:
    """One answer of the driver about all its devices."""

    gpus: tuple[GpuReading, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    identities: tuple[GpuIdentity, ...] = ()
    driver_version: str | None = None
    cuda_version: str | None = None
    state: str = "starting"
    """"ok", or the reason code that stands for the whole driver."""
    detail: str | None = None
    """The driver's own words about the state."""
    seconds: float | None = None
    """How long the driver took."""


class _DriverDownError(Exception):
    """The driver as a whole stopped answering; carries its words."""


class NvmlSession:
    """Asks the driver, on the caller's thread. Not for use from two threads at once."""

    def __init__(
        self,
        library: ModuleType | None = None,
        clock: Callable[[], float] = time.monotonic,
        run_pids: Callable[[], Iterable[int]] = tuple,
        only_uuid: str | None = None,
    ) -> None:
        """`only_uuid`: ask this GPU alone; None asks every one."""
        self._library: Any = library if library is not None else importlib.import_module("pynvml")
        self._clock = clock
        self._run_pids = run_pids
        self._only_uuid = only_uuid
        self._handles: dict[int, Any] = {}
        """By NVML's index, which is the GPU's number in every path and reading."""
        self._identities: dict[int, GpuIdentity] = {}
        self._unsupported: dict[tuple[int, str], str] = {}
        self._slow: dict[int, dict[str, Any]] = {}
        self._slow_at: dict[int, float] = {}
        self._versions: tuple[str | None, str | None] = (None, None)
        self._up = False
        self._library_missing: str | None = None
        self._next_attempt = 0.0
        self._down_reason: tuple[str, str] = ("starting", "not asked yet")

    def answer(self) -> GpuAnswer:
        """One pass over every device. Never raises for anything the driver does."""
        started = self._clock()
        if not self._up and not self._start(started):
            code, words = self._down_reason
            return GpuAnswer(
                self._lost_gpus(),
                self._lost_reasons(code),
                tuple(self._identities.values()),
                *self._versions,
                code,
                words,
            )
        missing: dict[str, str] = {}
        gpus: list[GpuReading] = []
        try:
            for position in self._handles:
                gpus.append(self._read_device(position, missing, started))
        except _DriverDownError as error:
            self._up = False
            self._next_attempt = started + RETRY_SECONDS
            self._down_reason = ("driver_down", str(error))
            return GpuAnswer(
                self._lost_gpus(),
                self._lost_reasons("driver_down"),
                tuple(self._identities.values()),
                *self._versions,
                "driver_down",
                str(error),
            )
        return GpuAnswer(
            tuple(gpus),
            missing,
            tuple(self._identities.values()),
            *self._versions,
            "ok" if gpus else "no_device",
            None,
            self._clock() - started,
        )

    def _start(self, now: float) -> bool:
        if self._library_missing is not None or now < self._next_attempt:
            return False
        try:
            self._library.nvmlInit()
            count = int(self._library.nvmlDeviceGetCount())
            self._handles = self._open(count)
        except self._library.NVMLError as error:
            value = int(getattr(error, "value", -1))
            code = _REASON_OF_ERROR.get(value, "driver_down")
            self._down_reason = (code, str(error))
            if value == 12:
                self._library_missing = str(error)
            self._next_attempt = now + RETRY_SECONDS
            return False
        if self._only_uuid is not None and not self._handles:
            self._down_reason = ("driver_down", f"the driver does not list the run's GPU {self._only_uuid}")
            self._next_attempt = now + RETRY_SECONDS
            return False
        self._up = True
        self._unsupported.clear()
        self._slow_at.clear()
        scratch: dict[str, str] = {}
        try:
            self._versions = (
                self._ask(-1, "driver", scratch, self._library.nvmlSystemGetDriverVersion),
                _cuda_version(self._ask(-1, "cuda", scratch, self._library.nvmlSystemGetCudaDriverVersion)),
            )
            self._identities = {position: self._identify(position) for position in self._handles}
        except _DriverDownError as error:
            self._up = False
            self._down_reason = ("driver_down", str(error))
            self._next_attempt = now + RETRY_SECONDS
            return False
        return True

    def _open(self, count: int) -> dict[int, Any]:
        """The GPUs to ask. Where one alone counts, another that has failed must not cost its readings."""
        nvml = self._library
        if self._only_uuid is None:
            return {index: nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)}
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = nvml.nvmlDeviceGetUUID(handle)
            except nvml.NVMLError:
                continue
            if (uuid.decode() if isinstance(uuid, bytes) else uuid) == self._only_uuid:
                return {index: handle}
        return {}

    def _lost_gpus(self) -> tuple[GpuReading, ...]:
        return tuple(
            GpuReading(identity.index, identity.name, identity.unified, memory_total_bytes=identity.memory_total_bytes)
            for identity in self._identities.values()
        )

    def _lost_reasons(self, code: str) -> dict[str, str]:
        return {f"gpus.{identity.index}.{name}": code for identity in self._identities.values() for name in MEASURED}

    def _ask(
        self, position: int, name: str, missing: dict[str, str], question: Callable[..., Any], *arguments: Any
    ) -> Any:
        """The answer, or None with its reason in `missing`. A refusal that lasts is remembered and not asked again."""
        path = f"gpus.{position}.{name}"
        known = self._unsupported.get((position, name))
        if known is not None:
            missing[path] = known
            return None
        try:
            return question(*arguments)
        except self._library.NVMLError as error:
            value = int(getattr(error, "value", -1))
            if value in _FATAL:
                raise _DriverDownError(str(error)) from error
            code = _REASON_OF_ERROR.get(value, "driver_error")
            if code != "driver_error":
                self._unsupported[(position, name)] = code
            missing[path] = code
        except Exception:  # noqa: BLE001  sensor boundary: a binding that chokes on an answer costs this value only
            missing[path] = "driver_error"
        return None

    def _identify(self, position: int) -> GpuIdentity:
        nvml, handle = self._library, self._handles[position]
        scratch: dict[str, str] = {}

        def ask(name: str, question: Callable[..., Any], *rest: Any) -> Any:
            return self._ask(position, name, scratch, question, handle, *rest)

        name = ask("name", nvml.nvmlDeviceGetName)
        memory = ask("memory_info", nvml.nvmlDeviceGetMemoryInfo)
        refused = self._unsupported.pop((position, "memory_info"), None)
        total = None if memory is None else int(memory.total)
        named_unified = any(part in (name or "") for part in UNIFIED_NAMES)
        unified = named_unified or refused == "not_supported" or total == 0
        limit = ask("enforced_limit", nvml.nvmlDeviceGetEnforcedPowerLimit)
        slowdown = ask("slowdown", nvml.nvmlDeviceGetTemperatureThreshold, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        capability = ask("capability", nvml.nvmlDeviceGetCudaComputeCapability)
        display = ask("display", nvml.nvmlDeviceGetDisplayActive)
        max_clock = ask("max_sm", nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM)
        return GpuIdentity(
            index=position,
            name=name,
            uuid=ask("uuid", nvml.nvmlDeviceGetUUID),
            compute_capability=None if capability is None else (int(capability[0]), int(capability[1])),
            memory_total_bytes=None if unified else total,
            unified=unified,
            display_active=None if display is None else bool(display),
            max_sm_clock_mhz=_positive(max_clock),
            slowdown_c=_positive(slowdown),
            power_limit_watts=None if not limit else limit / 1000,
        )

    def _read_device(self, position: int, missing: dict[str, str], now: float) -> GpuReading:
        nvml, handle, identity = self._library, self._handles[position], self._identities[position]

        def ask(name: str, question: Callable[..., Any], *rest: Any) -> Any:
            return self._ask(position, name, missing, question, handle, *rest)

        def blank(name: str, code: str) -> None:
            missing[f"gpus.{position}.{name}"] = code

        utilization = ask("utilization_percent", nvml.nvmlDeviceGetUtilizationRates)
        power = ask("power_watts", nvml.nvmlDeviceGetPowerUsage)
        sm_clock = ask("sm_clock_mhz", nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)
        bits = ask("event_reasons", nvml.nvmlDeviceGetCurrentClocksEventReasons)
        temperature = ask("temperature_c", nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU)
        memory_utilization = None if utilization is None else float(utilization.memory)
        if utilization is None:
            blank("memory_utilization_percent", missing[f"gpus.{position}.utilization_percent"])
        elif identity.unified and not memory_utilization:
            memory_utilization = None
            blank("memory_utilization_percent", "always_zero")
        total = used = available = None
        source: str | None = None
        if identity.unified:
            for name in ("memory_total_bytes", "memory_available_bytes", "memory_used_bytes"):
                blank(name, "unified")
        else:
            memory = ask("memory_used_bytes", nvml.nvmlDeviceGetMemoryInfo)
            if memory is not None:
                total, used, available, source = int(memory.total), int(memory.used), int(memory.free), "nvml"
            else:
                total = identity.memory_total_bytes
                blank("memory_available_bytes", missing[f"gpus.{position}.memory_used_bytes"])
                if total is None:
                    blank("memory_total_bytes", missing[f"gpus.{position}.memory_used_bytes"])
        if identity.power_limit_watts is None:
            blank("power_limit_watts", "not_supported")
        if identity.max_sm_clock_mhz is None:
            blank("max_sm_clock_mhz", "not_supported")
        if now - self._slow_at.get(position, -1e9) >= SLOW_SECONDS:
            self._slow[position] = self._read_slow(position, identity)
            self._slow_at[position] = now
        slow = dict(self._slow[position])
        missing.update(slow.pop("missing"))
        margin = slow.pop("margin_c")
        if margin is None and temperature is not None and identity.slowdown_c is not None:
            margin = identity.slowdown_c - temperature
            missing.pop(f"gpus.{position}.margin_c", None)
        return GpuReading(
            index=position,
            name=identity.name,
            unified=identity.unified,
            memory_total_bytes=total,
            memory_available_bytes=available,
            memory_used_bytes=used,
            memory_source=source,
            utilization_percent=None if utilization is None else float(utilization.gpu),
            memory_utilization_percent=memory_utilization,
            temperature_c=None if temperature is None else float(temperature),
            margin_c=margin,
            power_watts=None if power is None else power / 1000,
            power_limit_watts=identity.power_limit_watts,
            sm_clock_mhz=None if sm_clock is None else float(sm_clock),
            max_sm_clock_mhz=identity.max_sm_clock_mhz,
            event_reasons=None if bits is None else event_reason_names(int(bits)),
            answered_at=now,
            **slow,
        )

    def _read_slow(self, position: int, identity: GpuIdentity) -> dict[str, Any]:
        nvml, handle = self._library, self._handles[position]
        missing: dict[str, str] = {}

        def ask(name: str, question: Callable[..., Any], *rest: Any) -> Any:
            return self._ask(position, name, missing, question, handle, *rest)

        def above_zero(name: str, value: Any) -> float | None:
            """On unified devices the driver answers 0 for what it does not have."""
            if value == 0 and identity.unified:
                missing[f"gpus.{position}.{name}"] = "always_zero"
                return None
            return None if value is None else float(value)

        energy = ask("energy_joules", nvml.nvmlDeviceGetTotalEnergyConsumption)
        margin = ask("margin_c", nvml.nvmlDeviceGetMarginTemperature)
        memory_clock = above_zero(
            "memory_clock_mhz", ask("memory_clock_mhz", nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM)
        )
        counters = self._read_fields(position, missing)
        fan = ask("fan_percent", nvml.nvmlDeviceGetFanSpeed)
        pstate = ask("pstate", nvml.nvmlDeviceGetPerformanceState)
        values: dict[str, Any] = {
            "energy_joules": None if energy is None else energy / 1000,
            "margin_c": None if margin is None else float(margin),
            "memory_clock_mhz": memory_clock,
            "memory_temperature_c": above_zero("memory_temperature_c", counters.get("memory_temperature_c")),
            "power_capped_us": counters.get("power_capped_us"),
            "thermal_slowed_us": counters.get("thermal_slowed_us"),
            "fan_percent": above_zero("fan_percent", fan),
            "pstate": None if pstate is None else int(pstate),
            **self._read_processes(position, missing),
        }
        values["missing"] = missing
        return values

    def _read_fields(self, position: int, missing: dict[str, str]) -> dict[str, Any]:
        """Memory temperature and the accumulated slowdown counters, all in one question. The counters are in
        nanoseconds in NVML and in microseconds here."""
        nvml = self._library
        wanted = {
            "memory_temperature_c": (nvml.NVML_FI_DEV_MEMORY_TEMP,),
            "power_capped_us": (nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP,),
            "thermal_slowed_us": (
                nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
                nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
            ),
        }
        numbers = [number for group in wanted.values() for number in group]
        answers = self._ask(
            position, "fields", missing, nvml.nvmlDeviceGetFieldValues, self._handles[position], numbers
        )
        refusal = missing.pop(f"gpus.{position}.fields", "not_supported")
        by_number: dict[int, int] = {}
        for item in answers if answers is not None else ():
            if item.nvmlReturn == 0:
                value = _field_value(item)
                if value is not None:
                    by_number[int(item.fieldId)] = value
        found: dict[str, Any] = {}
        for name, group in wanted.items():
            parts = [by_number[number] for number in group if number in by_number]
            if parts:
                found[name] = sum(parts) if name == "memory_temperature_c" else sum(parts) // 1000
            else:
                missing[f"gpus.{position}.{name}"] = refusal
        return found

    def _read_processes(self, position: int, missing: dict[str, str]) -> dict[str, Any]:
        nvml = self._library
        blank = {"run_memory_bytes": None, "other_memory_bytes": None, "other_process": None}
        processes = self._ask(
            position, "run_memory_bytes", missing, nvml.nvmlDeviceGetComputeRunningProcesses, self._handles[position]
        )
        if processes is None:
            missing[f"gpus.{position}.other_memory_bytes"] = missing[f"gpus.{position}.run_memory_bytes"]
            return blank
        own = set(self._run_pids())
        pids = {int(process.pid) for process in processes}
        if own and pids and not pids & own and not any(procfs.process_name(pid) for pid in pids):
            for name in ("run_memory_bytes", "other_memory_bytes"):
                missing[f"gpus.{position}.{name}"] = "pid_namespace"
            return blank
        run_bytes = other_bytes = largest = 0
        other_name: str | None = None
        for process in processes:
            size, pid = process.usedGpuMemory or 0, int(process.pid)
            if pid in own:
                run_bytes += size
                continue
            other_bytes += size
            if size > largest:
                largest = size
                other_name = f"{procfs.process_name(pid) or 'unknown'} ({pid})"
        return {"run_memory_bytes": run_bytes, "other_memory_bytes": other_bytes, "other_process": other_name}


MEASURED = (
    "memory_available_bytes", "memory_used_bytes", "run_memory_bytes", "other_memory_bytes", "utilization_percent",
    "memory_utilization_percent", "temperature_c", "margin_c", "memory_temperature_c", "power_watts", "sm_clock_mhz",
    "memory_clock_mhz", "event_reasons", "power_capped_us", "thermal_slowed_us", "energy_joules", "pstate", "fan_percent",
)  # fmt: skip
"""What goes missing when the driver does."""


def event_reason_names(bits: int) -> tuple[str, ...]:
    """NVML's names of the reasons set in the mask; bits that nvml.h does not name are kept as numbers."""
    names = [name for bit, name in EVENT_REASON_BITS if bits & bit]
    unknown = bits & ~sum(bit for bit, _ in EVENT_REASON_BITS)
    return (*names, hex(unknown)) if unknown else tuple(names)


def _field_value(item: Any) -> int | None:
    """The member of the value union that its type names (nvmlValueType_t: 1 uint, 2 ulong, 3 ulonglong, 4 long long, 5 int)."""
    member = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}.get(int(item.valueType))
    return None if member is None else int(getattr(item.value, member))


def _positive(value: Any) -> float | None:
    return float(value) if value else None


def _cuda_version(number: int | None) -> str | None:
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"
