"""What to do about memory and heat, from readings alone: `decide(limits, state, reading) -> (state, actions)`.

In: limits, the state after the last reading, a reading. Out: the next state and the actions of this pass, each with its
reason and the readings it rests on. Nothing here reads a clock, a sensor or a file.

The ladder for memory: shed (checkpoint, empty caches, smaller micro-batch) -> stop (checkpoint, end) -> kill (process group).
For heat: pause between steps -> stop -> kill. An action is said once; the end of an episode is an action too ("calm").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from spark_rl.guard.limits import GuardLimits
from spark_rl.telemetry.reading import Reading
from spark_rl.units import GIB

ActionKind = Literal["shed", "stop", "kill", "pause", "resume", "calm"]
Cause = Literal["memory", "heat"]

RATE_WINDOW_SECONDS = 0.5
"""Over which a fast fall is measured: long enough for one chunk of an allocator not to look like a collapse."""
SLOW_WINDOW_SECONDS = 10.0
URGENT_SECONDS = 2.0
"""A floor that is nearer than this at the present rate is urgent: the worker is asked to shed at once."""
NEAR_SECONDS = 30.0
"""A floor nearer than this makes sampling fast, and turns a shed into a stop when memory is short already."""
CALM_SECONDS = 30.0
CALM_FACTOR = 1.25
"""An episode ends when headroom stayed above 1.25 x the shed level for 30 s."""
THRASH_GRACE_SECONDS = 30.0
SWAP_BYTES_PER_SECOND = 64 * 1024 * 1024
"""Swapping both ways above it, where PSI is not there to tell: 16,000 pages a second are not housekeeping."""
REBOUND_FACTOR = 1.3
TROUGH_SECONDS = 1800.0
HALF_HOUR = 1800.0


@dataclass(frozen=True)
class Action:
    """Something the supervisor must do now."""

    kind: ActionKind
    cause: Cause
    reason: str
    """A sentence for people, with the figures."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """The readings it rests on."""


@dataclass(frozen=True)
class MemoryState:
    rung: int = 0
    """0 nothing, 1 shed asked, 2 stop asked, 3 killed."""
    rung_since: float = 0.0
    calm_since: float | None = None
    recent: tuple[tuple[float, int], ...] = ()
    """(monotonic, headroom) of the last second or so."""
    slow: tuple[tuple[float, int], ...] = ()
    """The same, at most two a second, over ten seconds."""
    falling_intervals: int = 0
    short_readings: int = 0
    pressed_since: float | None = None
    lowest: int | None = None
    """Lowest headroom since the last rebound."""
    trough: tuple[float, int] | None = None
    """When and how low memory was when it last came back by itself."""
    requested_seconds: float | None = None
    """The pace that was asked for after the last reading."""


@dataclass(frozen=True)
class HeatState:
    rung: int = 0
    """0 nothing, 1 paused, 2 stop asked, 3 killed."""
    rung_since: float = 0.0
    hot_since: float | None = None
    very_hot_since: float | None = None
    killing_since: float | None = None
    pauses: tuple[float, ...] = ()


@dataclass(frozen=True)
class GuardState:
    memory: MemoryState = field(default_factory=MemoryState)
    heat: HeatState = field(default_factory=HeatState)
    next_seconds: float = 0.5
    """How long to wait before the next reading."""


def decide(limits: GuardLimits, state: GuardState, reading: Reading) -> tuple[GuardState, tuple[Action, ...]]:
    """The next state and what to do now."""
    memory, memory_actions, wait = _decide_memory(limits, state.memory, reading)
    heat, heat_actions = _decide_heat(limits, state.heat, reading)
    return GuardState(memory, heat, wait), (*memory_actions, *heat_actions)


class Guard:
    """`decide` with its state kept. One per run."""

    def __init__(self, limits: GuardLimits) -> None:
        self.limits = limits
        self.state = GuardState(next_seconds=limits.sample_seconds)

    def observe(self, reading: Reading) -> tuple[Action, ...]:
        self.state, actions = decide(self.limits, self.state, reading)
        return actions

    @property
    def next_seconds(self) -> float:
        """How long to wait before the next reading: shorter while memory falls."""
        return self.state.next_seconds


def _decide_memory(
    limits: GuardLimits, state: MemoryState, reading: Reading
) -> tuple[MemoryState, tuple[Action, ...], float]:
    now, headroom = reading.monotonic, reading.headroom_bytes
    if headroom is None:
        return state, (), limits.sample_seconds
    last = state.recent[-1] if state.recent else None
    if last is not None and now <= last[0]:
        return state, (), limits.sample_seconds
    gap = 0.0 if last is None else now - last[0]
    state = _remember(state, now, headroom)
    state = _remember_trough(state, now, headroom)
    rate = _fall_rate(state.recent)
    slow_rate = _slow_rate(state.slow)
    room = headroom - limits.floor_bytes
    to_floor = room / rate if rate > 0 else float("inf")
    slow_to_floor = room / slow_rate if slow_rate > 0 else float("inf")
    wait = _next_wait(limits, headroom, min(to_floor, slow_to_floor))
    lateness = 0.0 if state.requested_seconds is None else max(0.0, gap - state.requested_seconds)
    pressed, state = _pressed_seconds(limits, state, reading, now, headroom)
    before = {
        "headroom_gib": round(headroom / GIB, 3),
        "headroom_source": reading.headroom_source,
        "falling_gib_per_second": round(max(rate, slow_rate) / GIB, 3),
        "seconds_to_floor": None
        if min(to_floor, slow_to_floor) == float("inf")
        else round(min(to_floor, slow_to_floor), 2),
        "worker_rss_gib": None
        if reading.worker is None or reading.worker.rss_bytes is None
        else round(reading.worker.rss_bytes / GIB, 3),
        "others_gib": _others_gib(reading),
        "psi_memory_full_percent": reading.host.psi_memory_full_percent,
        "gap_seconds": round(gap, 2),
    }
    wanted, reason = _wanted_rung(limits, state, headroom, wait + lateness, to_floor, slow_to_floor, gap, pressed)
    state = replace(state, requested_seconds=wait)
    if wanted > state.rung:
        kind: ActionKind = ("shed", "stop", "kill")[wanted - 1]
        state = replace(state, rung=wanted, rung_since=now, calm_since=None)
        return state, (Action(kind, "memory", f"{reason} ({_shown(before)})", before),), limits.urgent_sample_seconds
    if state.rung == 2:
        grace = THRASH_GRACE_SECONDS if pressed > 0 else limits.stop_grace_seconds
        if now - state.rung_since >= grace and headroom < limits.shed_bytes * CALM_FACTOR:
            words = f"the worker was asked to stop {now - state.rung_since:.0f} s ago and memory is still short"
            state = replace(state, rung=3, rung_since=now)
            return state, (Action("kill", "memory", f"{words} ({_shown(before)})", before),), wait
    if state.rung == 1:
        return _calm_down(limits, state, now, headroom, pressed, before, wait)
    return state, (), wait


def _wanted_rung(
    limits: GuardLimits,
    state: MemoryState,
    headroom: int,
    next_look_seconds: float,
    to_floor: float,
    slow_to_floor: float,
    gap: float,
    pressed: float,
) -> tuple[int, str]:
    """The rung this reading calls for, and why."""
    floor_gib = limits.floor_bytes / GIB
    if headroom <= limits.floor_bytes + limits.floor_margin_bytes:
        return 3, f"headroom is about to fall below the floor of {floor_gib:.1f} GiB"
    confirmed = state.falling_intervals >= 2 or headroom <= limits.shed_bytes
    if confirmed and to_floor <= 1.5 * next_look_seconds + limits.kill_seconds and not _been_here(state, headroom):
        return 3, f"the floor of {floor_gib:.1f} GiB would be passed before the next look"
    long_gap = gap >= limits.gap_seconds
    if long_gap and headroom < limits.shed_bytes:
        return 3, f"no reading for {gap:.0f} s while memory is short: the machine is wedging"
    if headroom <= limits.stop_bytes and state.short_readings >= 2:
        return 2, f"headroom is below {limits.stop_bytes / GIB:.1f} GiB"
    if headroom <= limits.shed_bytes and slow_to_floor <= NEAR_SECONDS and len(state.slow) >= 4:
        return 2, f"headroom is below {limits.shed_bytes / GIB:.1f} GiB and still falling"
    if long_gap and headroom < 2 * limits.shed_bytes and state.rung >= 1:
        return 2, f"no reading for {gap:.0f} s while memory is short"
    if pressed >= limits.pressure_stop_seconds:
        return 2, f"the machine has been thrashing for {pressed:.0f} s"
    if headroom <= limits.shed_bytes and state.short_readings >= 2:
        return 1, f"headroom is below {limits.shed_bytes / GIB:.1f} GiB"
    if to_floor <= URGENT_SECONDS and state.falling_intervals >= 2 and not _been_here(state, headroom):
        return 1, f"the floor of {floor_gib:.1f} GiB is {to_floor:.1f} s away at this rate"
    if pressed >= limits.pressure_shed_seconds:
        return 1, f"the machine has been thrashing for {pressed:.0f} s"
    if long_gap and headroom < 2 * limits.shed_bytes:
        return 1, f"no reading for {gap:.0f} s while memory is short"
    return 0, ""


def _calm_down(
    limits: GuardLimits,
    state: MemoryState,
    now: float,
    headroom: int,
    pressed: float,
    before: Mapping[str, Any],
    wait: float,
) -> tuple[MemoryState, tuple[Action, ...], float]:
    """Ends a shed episode once memory has been back for a while."""
    if headroom < limits.shed_bytes * CALM_FACTOR or pressed > 0:
        return replace(state, calm_since=None), (), wait
    since = now if state.calm_since is None else state.calm_since
    if now - since < CALM_SECONDS:
        return replace(state, calm_since=since), (), wait
    state = replace(state, rung=0, rung_since=now, calm_since=None)
    return state, (Action("calm", "memory", f"memory is back ({_shown(before)})", before),), wait


def _remember(state: MemoryState, now: float, headroom: int) -> MemoryState:
    """Adds a reading to the two histories; neither grows."""
    falling = bool(state.recent) and headroom < state.recent[-1][1]
    recent = (*(point for point in state.recent[-7:] if now - point[0] <= 2.0), (now, headroom))
    if len(recent) == 1 and state.recent:
        recent = (state.recent[-1], (now, headroom))
    slow = state.slow
    if not slow or now - slow[-1][0] >= 0.45:
        slow = (*(point for point in slow[-23:] if now - point[0] <= SLOW_WINDOW_SECONDS), (now, headroom))
    return replace(state, recent=recent, slow=slow, falling_intervals=state.falling_intervals + 1 if falling else 0)


def _remember_trough(state: MemoryState, now: float, headroom: int) -> MemoryState:
    """A depth the run has been at and came back from is no news: a sampler that wakes and sleeps does that at every step."""
    lowest = headroom if state.lowest is None else min(state.lowest, headroom)
    trough = state.trough
    if trough is not None and now - trough[0] > TROUGH_SECONDS:
        trough = None
    if headroom > lowest * REBOUND_FACTOR and state.rung == 0:
        trough = (now, lowest if trough is None else min(lowest, trough[1]))
        lowest = headroom
    return replace(state, lowest=lowest, trough=trough)


def _been_here(state: MemoryState, headroom: int) -> bool:
    return state.trough is not None and headroom >= state.trough[1]


def _fall_rate(recent: tuple[tuple[float, int], ...]) -> float:
    """Bytes per second lost over the last half second, no more than twice what the last interval shows, so that a fall
    that has ended is not carried on."""
    if len(recent) < 2:
        return 0.0
    (previous_at, previous), (now, headroom) = recent[-2], recent[-1]
    last_rate = (previous - headroom) / (now - previous_at)
    start = recent[-2]
    for point in reversed(recent[:-1]):
        if now - point[0] > RATE_WINDOW_SECONDS * 1.2:
            break
        start = point
    window_rate = (start[1] - headroom) / (now - start[0])
    return max(0.0, min(window_rate, 2 * last_rate))


def _slow_rate(slow: tuple[tuple[float, int], ...]) -> float:
    if len(slow) < 4:
        return 0.0
    (first_at, first), (now, headroom) = slow[0], slow[-1]
    return max(0.0, (first - headroom) / (now - first_at))


def _next_wait(limits: GuardLimits, headroom: int, to_floor: float) -> float:
    if to_floor <= URGENT_SECONDS:
        return limits.urgent_sample_seconds
    if headroom <= 1.5 * limits.shed_bytes or to_floor <= NEAR_SECONDS:
        return limits.fast_sample_seconds
    return limits.sample_seconds


def _pressed_seconds(
    limits: GuardLimits, state: MemoryState, reading: Reading, now: float, headroom: int
) -> tuple[float, MemoryState]:
    """For how long the machine has done little but move pages, and the state that remembers since when. Also counts the
    readings below the shed level."""
    host = reading.host
    full = host.psi_memory_full_percent
    swapping = min(host.swap_in_bytes_per_second or 0.0, host.swap_out_bytes_per_second or 0.0)
    if full is not None:
        pressed = full >= limits.pressure_percent
    else:
        pressed = swapping >= SWAP_BYTES_PER_SECOND and headroom < 2 * limits.shed_bytes
    since = (now if state.pressed_since is None else state.pressed_since) if pressed else None
    short = state.short_readings + 1 if headroom <= limits.shed_bytes else 0
    state = replace(state, pressed_since=since, short_readings=short)
    return (0.0 if since is None else now - since), state


def _others_gib(reading: Reading) -> float | None:
    """Memory in use that is not the run's, as far as it can be told; None when the run's share is not known."""
    host, worker = reading.host, reading.worker
    if host.mem_total_bytes is None or host.mem_available_bytes is None or worker is None or worker.rss_bytes is None:
        return None
    own = worker.rss_bytes + sum(gpu.run_memory_bytes or 0 for gpu in reading.gpus if gpu.unified)
    return round(max(0, host.mem_total_bytes - host.mem_available_bytes - own) / GIB, 3)


def _shown(before: Mapping[str, Any]) -> str:
    parts = [f"{before['headroom_gib']:.2f} GiB left by {before['headroom_source']}"]
    if before["falling_gib_per_second"] >= 0.05:
        parts.append(f"falling {before['falling_gib_per_second']:.2f} GiB/s")
    if before["worker_rss_gib"] is not None:
        parts.append(f"worker {before['worker_rss_gib']:.1f} GiB resident")
    if before["others_gib"] is not None:
        parts.append(f"others {before['others_gib']:.1f} GiB")
    return ", ".join(parts)


def _decide_heat(limits: GuardLimits, state: HeatState, reading: Reading) -> tuple[HeatState, tuple[Action, ...]]:
    now, margin = reading.monotonic, reading.heat_margin_c
    celsius = max((gpu.temperature_c for gpu in reading.gpus if gpu.temperature_c is not None), default=None)
    if (margin is None and celsius is None) or state.rung == 3:
        return replace(state, hot_since=None, very_hot_since=None, killing_since=None), ()
    margin_c = float("inf") if margin is None else margin
    gpu_c = float("-inf") if celsius is None else celsius
    state = replace(
        state,
        hot_since=_since(state.hot_since, margin_c <= limits.pause_margin_c or gpu_c >= limits.pause_celsius, now),
        very_hot_since=_since(
            state.very_hot_since, margin_c <= limits.stop_margin_c or gpu_c >= limits.stop_celsius, now
        ),
        killing_since=_since(state.killing_since, margin_c <= limits.kill_margin_c, now),
    )
    cool = margin_c >= limits.resume_margin_c and gpu_c <= limits.resume_celsius
    before = {
        "gpu_temperature_c": celsius,
        "margin_c": margin,
        "hottest_zone_c": reading.host.hottest_zone_c,
        "power_watts": max((gpu.power_watts for gpu in reading.gpus if gpu.power_watts is not None), default=None),
    }
    shown = ", ".join(
        words
        for value, words in (
            (celsius, f"GPU {gpu_c:.0f} °C"),
            (margin, f"{margin_c:.0f} °C below a slowdown or shutdown temperature"),
        )
        if value is not None
    )

    def act(kind: ActionKind, rung: int, words: str, **changes: Any) -> tuple[HeatState, tuple[Action, ...]]:
        return replace(state, rung=rung, rung_since=now, **changes), (
            Action(kind, "heat", f"{words} ({shown})", before),
        )

    if _held(state.killing_since, now, limits.heat_hold_seconds / 2):
        return act("kill", 3, "the machine is about to switch itself off")
    if state.rung == 2:
        return state, ()
    if _held(state.very_hot_since, now, limits.heat_hold_seconds / 2):
        return act("stop", 2, "too hot: the driver is slowing the GPU down")
    if state.rung == 1:
        if cool:
            return act("resume", 0, "cool again")
        if now - state.rung_since >= limits.heat_max_pause_seconds:
            return act("stop", 2, f"still hot after a pause of {now - state.rung_since:.0f} s")
        return state, ()
    if _held(state.hot_since, now, limits.heat_hold_seconds):
        pauses = (*(moment for moment in state.pauses if now - moment <= HALF_HOUR), now)
        if len(pauses) > limits.heat_max_pauses:
            return act("stop", 2, f"hot again after {limits.heat_max_pauses} pauses within half an hour")
        return act("pause", 1, "hot: pausing between steps", pauses=pauses)
    return state, ()


def _since(since: float | None, holds: bool, now: float) -> float | None:
    return (now if since is None else since) if holds else None


def _held(since: float | None, now: float, seconds: float) -> bool:
    return since is not None and now - since >= seconds
