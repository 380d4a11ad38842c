"""The figures the guard goes by, and where each comes from.

In: what the machine is (unified or not, how much memory) and the recipe's [guard] values. Out: `GuardLimits` with a
reason for every figure, as shown before a run starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_rl.errors import ConfigError, Problem, did_you_mean
from spark_rl.units import GIB

UNIFIED_SHED_GIB, UNIFIED_FLOOR_GIB = 12.0, 8.0
"""Unified memory wedges without an out-of-memory kill: failures were seen from 6-8 GiB of MemAvailable downwards."""
DISCRETE_SHED_GIB, DISCRETE_FLOOR_GIB = 4.0, 2.0
"""Host memory beside a card of its own: the kernel's own out-of-memory kill works here, the guard is only kinder."""


@dataclass(frozen=True)
class GuardLimits:
    """All figures of the guard. Bytes of headroom, degrees below the slowdown temperature, seconds."""

    shed_bytes: int = int(UNIFIED_SHED_GIB * GIB)
    """Below it the worker is asked to checkpoint and to give memory back."""
    stop_bytes: int = int((UNIFIED_SHED_GIB + UNIFIED_FLOOR_GIB) / 2 * GIB)
    """Below it the worker is asked to checkpoint and end."""
    floor_bytes: int = int(UNIFIED_FLOOR_GIB * GIB)
    """The worker's processes are gone before headroom falls below it."""
    floor_margin_bytes: int = int(0.5 * GIB)
    """The kill comes this much above the floor, more when memory falls fast."""
    stop_grace_seconds: float = 180.0
    """How long a worker that was asked to stop may take to its next step boundary while memory holds."""
    pressure_percent: float = 20.0
    """PSI `full`, averaged over 10 s: the share of time in which nothing but waiting for memory happened."""
    pressure_shed_seconds: float = 10.0
    pressure_stop_seconds: float = 30.0
    gap_seconds: float = 5.0
    """A supervisor that was not scheduled for so long while memory is short sits on a machine that is wedging."""
    heat_pause_margin_c: float = 4.0
    """Pause between steps below it. A healthy DGX Spark runs down to 8 (86 °C) in its hottest hours; failures were
    reported from 91-92 °C, which is 3."""
    heat_resume_margin_c: float = 12.0
    heat_stop_margin_c: float = 0.0
    """The driver slows the GPU by itself from here on: pausing has not helped."""
    heat_kill_margin_c: float = -3.0
    """Two degrees before the firmware switches a DGX Spark off."""
    heat_hold_seconds: float = 10.0
    """How long it must be that hot."""
    heat_max_pause_seconds: float = 300.0
    heat_max_pauses: int = 3
    """Pauses within half an hour after which the run is stopped."""
    sample_seconds: float = 0.5
    """Between passes while nothing happens."""
    fast_sample_seconds: float = 0.1
    """While memory falls towards the floor, or is short."""
    urgent_sample_seconds: float = 0.03
    """While the floor is less than two seconds away at the present rate."""
    kill_seconds: float = 0.15
    """From the decision to the last allocation of a process group that got SIGKILL: 2-60 ms measured, and some air."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Key -> where its value comes from."""

    def describe(self) -> str:
        """One line for people, with the effective memory floors."""
        return (
            f"guard: asks the worker to shed below {self.shed_bytes / GIB:.1f} GiB, stops it below {self.stop_bytes / GIB:.1f} GiB, "
            f"has killed it before {self.floor_bytes / GIB:.1f} GiB ({self.reasons.get('floor_bytes', 'default')})"
        )


SETTINGS: Mapping[str, tuple[str, float]] = {
    "shed_gib": ("shed_bytes", GIB),
    "stop_gib": ("stop_bytes", GIB),
    "floor_gib": ("floor_bytes", GIB),
    "stop_grace_seconds": ("stop_grace_seconds", 1),
    "pressure_percent": ("pressure_percent", 1),
    "heat_pause_margin_c": ("heat_pause_margin_c", 1),
    "heat_resume_margin_c": ("heat_resume_margin_c", 1),
    "heat_stop_margin_c": ("heat_stop_margin_c", 1),
    "heat_max_pauses": ("heat_max_pauses", 1),
    "sample_seconds": ("sample_seconds", 1),
}
"""The keys of [guard] in a profile -> the field and its unit."""


def limits_for(
    unified: bool, total_bytes: int | None, settings: Mapping[str, float | None] | None = None
) -> GuardLimits:
    """The limits for a machine, with the recipe's own values on top (None = the default).

    `total_bytes` is the tightest ceiling over host memory (a container's limit counts). A machine too small for the
    default floors gets a quarter and an eighth of its memory. Raises ConfigError for values that contradict each other.
    """
    shed, floor = (UNIFIED_SHED_GIB, UNIFIED_FLOOR_GIB) if unified else (DISCRETE_SHED_GIB, DISCRETE_FLOOR_GIB)
    source = "default for unified memory" if unified else "default for host memory beside a GPU of its own, or none"
    if total_bytes is not None and total_bytes < 4 * shed * GIB:
        shed, floor = total_bytes / GIB / 4, total_bytes / GIB / 8
        source = f"a quarter and an eighth of this machine's {total_bytes / GIB:.1f} GiB"
    given = {key: value for key, value in (settings or {}).items() if value is not None}
    problems = [
        Problem("[guard]", key, "unknown key", did_you_mean(key, SETTINGS)) for key in given if key not in SETTINGS
    ]
    problems += [
        Problem("[guard]", key, f"{value!r} is not a positive number")
        for key, value in given.items()
        if key in SETTINGS and "margin" not in key and not (isinstance(value, (int, float)) and value > 0)
    ]
    if problems:
        raise ConfigError(problems)
    shed, floor = given.get("shed_gib", shed), given.get("floor_gib", floor)
    stop = given.get("stop_gib", (shed + floor) / 2)
    if not floor < stop < shed:
        raise ConfigError(
            [Problem("[guard]", "floor_gib", f"needs floor < stop < shed, got {floor:g} / {stop:g} / {shed:g} GiB")]
        )
    limits = GuardLimits(
        shed_bytes=int(shed * GIB),
        stop_bytes=int(stop * GIB),
        floor_bytes=int(floor * GIB),
        floor_margin_bytes=int(min(0.5, floor / 8) * GIB),
    )
    changed: dict[str, Any] = {
        SETTINGS[key][0]: int(value) if key == "heat_max_pauses" else float(value)
        for key, value in given.items()
        if not key.endswith("_gib")
    }
    reasons = dict.fromkeys(("shed_bytes", "stop_bytes", "floor_bytes"), source)
    reasons |= {SETTINGS[key][0]: f"recipe, guard.{key}" for key in given}
    limits = replace(limits, reasons=reasons, **changed)
    if not limits.heat_stop_margin_c < limits.heat_pause_margin_c < limits.heat_resume_margin_c:
        raise ConfigError([Problem("[guard]", "heat_pause_margin_c", "needs heat_stop < heat_pause < heat_resume")])
    return limits
