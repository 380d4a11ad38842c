"""The GPU's own readings through pynvml, asked in a thread of their own so that a hung driver hangs nobody else.

In: nothing (pynvml finds libnvidia-ml.so.1), or another module with pynvml's functions. Out: `NvmlSource.read()`, which
gives the newest GPU readings, the reason codes of what is missing, and the state of the driver in words.
Each question stands alone: one that fails leaves the others. What a device does not know is asked once.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from spark_rl.telemetry import procfs
from spark_rl.telemetry.reading import GpuReading

FAST_SECONDS = 0.45
"""Utilisation, power, clocks: the driver itself refreshes them every 100-1000 ms, so 2 Hz is the most that says anything."""
SLOW_SECONDS = 2.0
"""Temperatures, accumulated counters and the process list change slowly or cost more."""
STALE_SECONDS = 3.0
"""An answer older than this is not shown any more."""
PATIENCE_SECONDS = 0.05
"""How long a pass waits for the driver: healthy drivers answer a whole pass in 1-10 ms."""
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
    ) -> None:
        self._library: Any = library if library is not None else importlib.import_module("pynvml")
        self._clock = clock
        self._run_pids = run_pids
        self._handles: list[Any] = []
        self._identities: list[GpuIdentity] = []
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
                self._lost_gpus(), self._lost_reasons(code), tuple(self._identities), *self._versions, code, words
            )
        missing: dict[str, str] = {}
        gpus: list[GpuReading] = []
        try:
            for position in range(len(self._handles)):
                gpus.append(self._read_device(position, missing, started))
        except _DriverDownError as error:
            self._up = False
            self._next_attempt = started + RETRY_SECONDS
            self._down_reason = ("driver_down", str(error))
            return GpuAnswer(
                self._lost_gpus(),
                self._lost_reasons("driver_down"),
                tuple(self._identities),
                *self._versions,
                "driver_down",
                str(error),
            )
        return GpuAnswer(
            tuple(gpus),
            missing,
            tuple(self._identities),
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
            self._handles = [self._library.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except self._library.NVMLError as error:
            value = int(getattr(error, "value", -1))
            code = _REASON_OF_ERROR.get(value, "driver_down")
            self._down_reason = (code, str(error))
            if value == 12:
                self._library_missing = str(error)
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
            self._identities = [self._identify(position) for position in range(count)]
        except _DriverDownError as error:
            self._up = False
            self._down_reason = ("driver_down", str(error))
            self._next_attempt = now + RETRY_SECONDS
            return False
        return True

    def _lost_gpus(self) -> tuple[GpuReading, ...]:
        return tuple(
            GpuReading(identity.index, identity.name, identity.unified, memory_total_bytes=identity.memory_total_bytes)
            for identity in self._identities
        )

    def _lost_reasons(self, code: str) -> dict[str, str]:
        return {f"gpus.{identity.index}.{name}": code for identity in self._identities for name in MEASURED}

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


class NvmlSource:
    """Keeps one thread that asks the driver when asked to, and hands out its newest answer."""

    def __init__(
        self,
        make_session: Callable[[], NvmlSession] = NvmlSession,
        clock: Callable[[], float] = time.monotonic,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._make_session = make_session
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._wanted = threading.Condition()
        self._asked = 0
        self._answered = 0
        self._asked_at = 0.0
        self._closed = False
        self._answer = GpuAnswer()
        self._answered_at: float | None = None
        self._thread: threading.Thread | None = None

    def read(self) -> GpuAnswer:
        """The newest answer, asked for anew when it is older than `FAST_SECONDS`. Waits `patience_seconds` at most, and
        not at all while an earlier question is still open."""
        now = self._clock()
        with self._wanted:
            idle = self._asked == self._answered
            due = self._answered_at is None or now - self._answered_at >= FAST_SECONDS
            if idle and due and not self._closed:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve, name="nvml", daemon=True)
                    self._thread.start()
                self._asked += 1
                self._asked_at = now
                self._wanted.notify_all()
                self._wanted.wait_for(lambda: self._answered == self._asked, self._patience_seconds)
            return self._judge(self._answer, self._clock())

    def _judge(self, answer: GpuAnswer, now: float) -> GpuAnswer:
        """The answer as it may be shown now: too old means gone, with the reason."""
        if self._asked == self._answered:
            return answer
        waited = now - self._asked_at
        if answer.state == "starting":
            words = f"the driver has not answered its first question for {waited:.1f} s"
            return replace(answer, state="driver_hangs" if waited > STALE_SECONDS else "starting", detail=words)
        if self._answered_at is not None and now - self._answered_at > STALE_SECONDS:
            lost = {f"gpus.{gpu.index}.{name}": "driver_hangs" for gpu in answer.gpus for name in MEASURED}
            kept = tuple(
                GpuReading(gpu.index, gpu.name, gpu.unified, gpu.memory_total_bytes, answered_at=gpu.answered_at)
                for gpu in answer.gpus
            )
            return replace(
                answer,
                gpus=kept,
                missing={**answer.missing, **lost},
                state="driver_hangs",
                detail=f"no answer from the driver for {waited:.1f} s",
            )
        return answer

    def close(self) -> None:
        """Lets the thread end. A thread inside a hung driver is left to it."""
        with self._wanted:
            self._closed = True
            self._wanted.notify_all()

    def _serve(self) -> None:
        session: NvmlSession | None = None
        while True:
            with self._wanted:
                self._wanted.wait_for(lambda: self._closed or self._asked != self._answered)
                if self._closed:
                    return
                asked = self._asked
            try:
                session = session or self._make_session()
                answer = session.answer()
            except Exception as error:  # noqa: BLE001  sensor boundary: the other sensors go on
                answer = GpuAnswer(state="driver_error", detail=f"{type(error).__name__}: {error}")
            with self._wanted:
                self._answer = answer
                self._answered = asked
                self._answered_at = self._clock()
                self._wanted.notify_all()


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
