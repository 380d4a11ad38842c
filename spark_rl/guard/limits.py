"""The figures the guard goes by, and where each comes from.

In: what the machine is (unified or not, how much memory) and the recipe's [guard] values. Out: `GuardLimits` with a
reason for every figure, as shown before a run starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_rl.errors import ConfigError, Problem, did_you_mean
from spark_rl.units import GIB, format_bytes

UNIFIED_SHED_GIB, UNIFIED_FLOOR_GIB = 12.0, 8.0
"""Unified memory wedges without an out-of-memory kill: failures were seen from 6-8 GiB of MemAvailable downwards."""
HOST_SHED_GIB, HOST_FLOOR_GIB = 4.0, 2.0
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
    pause_celsius: float = 90.0
    """Pause between steps from this GPU temperature on. A healthy DGX Spark reaches 86 in its hottest hours; failures
    were reported from 91-92."""
    resume_celsius: float = 80.0
    stop_celsius: float = 94.0
    """From here on the driver slows a DGX Spark by itself: pausing has not helped."""
    pause_margin_c: float = 4.0
    """The same three as degrees below the temperature at which this device slows itself, where it says so. Whichever
    comes first counts."""
    resume_margin_c: float = 12.0
    stop_margin_c: float = 0.0
    kill_margin_c: float = -3.0
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
    short_sample_seconds: float = 0.05
    """While headroom is within a quarter of the shed level: a collapse of 14 GiB/s from there leaves 0.3 s."""
    urgent_sample_seconds: float = 0.03
    """While the floor is less than two seconds away at the present rate."""
    kill_seconds: float = 0.2
    """From the decision to the last allocation of a process group that got SIGKILL (2-60 ms measured), and a look missed."""
    expected_low_bytes: int | None = None
    """The lowest headroom that fit predicts for this run: falling fast, but not below it, is the plan."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Key -> where its value comes from."""

    def describe(self) -> str:
        """One line for people, with the effective memory floors."""
        return (
            f"asks the worker to shed below {format_bytes(self.shed_bytes)}, stops it below {format_bytes(self.stop_bytes)}, "
            f"has killed it before {format_bytes(self.floor_bytes)} ({self.reasons.get('floor_bytes', 'default')})"
        )


def limits_for(
    unified: bool, total_bytes: int | None, settings: Mapping[str, float | None] | None = None
) -> GuardLimits:
    """The limits for a machine under the recipe's [guard] values (absent or None = the default).

    `total_bytes` is the tightest ceiling over host memory (a container's limit counts). On a machine too small for the
    floors asked for they become a quarter and an eighth of it. Raises ConfigError for values that contradict each other.
    """
    given = {key: float(value) for key, value in (settings or {}).items() if value is not None}
    problems = [
        Problem("[guard]", key, "unknown key", did_you_mean(key, SETTINGS)) for key in given if key not in SETTINGS
    ]
    problems += [Problem("[guard]", key, f"{value!r} is not above 0") for key, value in given.items() if value <= 0]
    if problems:
        raise ConfigError(problems)
    kind = "unified" if unified else "host"
    shed_gib = given.get(f"{kind}_shed_gib", UNIFIED_SHED_GIB if unified else HOST_SHED_GIB)
    floor_gib = given.get(f"{kind}_floor_gib", UNIFIED_FLOOR_GIB if unified else HOST_FLOOR_GIB)
    source = f"guard.{kind}_floor_gib"
    if total_bytes is not None and shed_gib * GIB > total_bytes / 4:
        shed_gib, floor_gib = total_bytes / GIB / 4, min(floor_gib, total_bytes / GIB / 8)
        source = f"a quarter and an eighth of the {total_bytes / GIB:.1f} GiB there are"
    if not floor_gib < shed_gib:
        raise ConfigError(
            [Problem("[guard]", f"{kind}_floor_gib", f"needs floor < shed, got {floor_gib:g} and {shed_gib:g} GiB")]
        )
    limits = GuardLimits(
        shed_bytes=int(shed_gib * GIB),
        stop_bytes=int((shed_gib + floor_gib) / 2 * GIB),
        floor_bytes=int(floor_gib * GIB),
        floor_margin_bytes=int(min(0.5, floor_gib / 8) * GIB),
        reasons=dict.fromkeys(("shed_bytes", "stop_bytes", "floor_bytes"), source),
    )
    heat: dict[str, Any] = {
        key: given[key] for key in ("pause_celsius", "resume_celsius", "stop_celsius") if key in given
    }
    limits = replace(limits, **heat)
    if not limits.resume_celsius < limits.pause_celsius < limits.stop_celsius:
        raise ConfigError([Problem("[guard]", "pause_celsius", "must lie between resume_celsius and stop_celsius")])
    return limits


SETTINGS = (
    "unified_shed_gib", "unified_floor_gib", "host_shed_gib", "host_floor_gib",
    "pause_celsius", "resume_celsius", "stop_celsius", "sample_seconds",
)  # fmt: skip
"""The keys of [guard] in a profile. `sample_seconds` is the pace of telemetry.jsonl and does not slow the guard."""
