"""Memory: shed, then stop, then kill before the floor. Pure: `decide_memory(limits, state, reading) -> (state, actions, wait)`.

Three questions in each pass: how low is it, how fast does it fall, and may there be another look before it is too late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_rl.guard.action import HALF_HOUR, Action, ActionKind
from spark_rl.guard.limits import GuardLimits
from spark_rl.telemetry.reading import Reading
from spark_rl.units import GIB, MIB, format_bytes

RATE_WINDOW_SECONDS = 0.5
"""Over which a fast fall is measured: long enough for one chunk of an allocator not to look like a collapse."""
SHORT_WINDOW_SECONDS = 0.12
"""The same below the shed level, where a chunk may be the last one."""
SLOW_WINDOW_SECONDS = 10.0
URGENT_SECONDS = 2.0
"""A floor nearer than this at the present rate: look as often as is cheap. Nothing is asked of the worker yet: its next
step boundary is further away than the floor, and a sampler that wakes up falls as fast."""
NEAR_SECONDS = 30.0
"""A floor nearer than this makes sampling fast, and turns a shed into a stop when memory is short already."""
LOOK_FACTOR = 1.5
"""The next look may come that much later than asked for."""
VERY_NEAR_SECONDS = 5.0
"""Nearer than this there is no time to see whether shedding helps."""
SHED_SECONDS = 3.0
"""How long it is given, where there is time."""
MAX_LATENESS_SECONDS = 1.0
"""Readings that come late are expected late again, up to this: beyond it they are a slow recording, or a gap."""
CALM_SECONDS = 30.0
CALM_FACTOR = 1.25
"""An episode ends when headroom stayed above 1.25 x the shed level for 30 s; four times as long after each further
episode within half an hour, so that a run that breathes around the level is not asked at every breath."""
THRASH_GRACE_SECONDS = 30.0
SWAP_BYTES_PER_SECOND = 64 * MIB
"""Swapping both ways above it, where PSI is not there to tell: 16,000 pages a second are not housekeeping."""
PRESSURE_FACTOR = 4
GAP_FACTOR = 5.0
REBOUND_FACTOR = 1.3
TROUGH_SECONDS = 1800.0


@dataclass(frozen=True)
class MemoryState:
    rung: int = 0
    """0 nothing, 1 shed asked, 2 stop asked, 3 killed."""
    rung_since: float = 0.0
    calm_since: float | None = None
    episodes: tuple[float, ...] = ()
    """When the shed episodes of the last half hour began."""
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
    usual_gap: float | None = None
    """Smoothed time between readings: a recording taken every 10 s has no gaps for that."""


def decide_memory(
    limits: GuardLimits, state: MemoryState, reading: Reading
) -> tuple[MemoryState, tuple[Action, ...], float]:
    now, headroom = reading.monotonic, reading.headroom_bytes
    if headroom is None:
        return state, (), limits.sample_seconds
    last = state.recent[-1] if state.recent else None
    if last is not None and now <= last[0]:
        return state, (), limits.sample_seconds
    gap = 0.0 if last is None else now - last[0]
    usual_gap = state.usual_gap
    long_gap = usual_gap is not None and gap >= max(limits.gap_seconds, GAP_FACTOR * usual_gap)
    if last is not None:
        usual_gap = gap if usual_gap is None else usual_gap + 0.2 * (min(gap, 60.0) - usual_gap)
    recent, slow = _remember(state, now, headroom)
    lowest, trough = _remember_trough(state, now, headroom)
    short = headroom <= limits.shed_bytes
    rate = _fall_rate(recent, SHORT_WINDOW_SECONDS if short else RATE_WINDOW_SECONDS)
    slow_rate = _slow_rate(slow)
    room = headroom - limits.floor_bytes
    to_floor = room / rate if rate > 0 else float("inf")
    slow_to_floor = room / slow_rate if slow_rate > 0 else float("inf")
    wait = _next_wait(limits, headroom, min(to_floor, slow_to_floor))
    late = 0.0 if state.requested_seconds is None else gap - state.requested_seconds
    pressed_since = _pressed_since(limits, state, reading, headroom)
    state = replace(
        state,
        recent=recent,
        slow=slow,
        falling_intervals=state.falling_intervals + 1 if last is not None and headroom < last[1] else 0,
        short_readings=state.short_readings + 1 if short else 0,
        pressed_since=pressed_since,
        lowest=lowest,
        trough=trough,
        requested_seconds=wait,
        usual_gap=usual_gap,
    )
    look = Look(
        now=now,
        headroom=headroom,
        next_look_seconds=wait + min(MAX_LATENESS_SECONDS, max(0.0, late)),
        seconds_to_floor=to_floor,
        slow_seconds_to_floor=slow_to_floor,
        gap_seconds=gap if long_gap else 0.0,
        pressed_seconds=0.0 if pressed_since is None else now - pressed_since,
    )
    wanted, reason = _wanted_rung(limits, state, look)

    def act(kind: ActionKind, words: str) -> tuple[Action, ...]:
        before = _before(reading, look, max(rate, slow_rate))
        return (Action(kind, "memory", f"{words} ({_shown(before)})", before),)

    if wanted > state.rung:
        episodes = (*(since for since in state.episodes if now - since <= HALF_HOUR), now)[-4:]
        state = replace(state, rung=wanted, rung_since=now, calm_since=None, episodes=episodes)
        kinds: tuple[ActionKind, ...] = ("shed", "stop", "kill")
        return state, act(kinds[wanted - 1], reason), limits.urgent_sample_seconds
    if state.rung == 2:
        grace = THRASH_GRACE_SECONDS if look.pressed_seconds > 0 else limits.stop_grace_seconds
        if now - state.rung_since >= grace and headroom < limits.shed_bytes * CALM_FACTOR:
            words = f"the worker was asked to stop {now - state.rung_since:.0f} s ago and memory is still short"
            return replace(state, rung=3, rung_since=now), act("kill", words), wait
    if state.rung == 1:
        if headroom < limits.shed_bytes * CALM_FACTOR or look.pressed_seconds > 0:
            return (state if state.calm_since is None else replace(state, calm_since=None)), (), wait
        if state.calm_since is None:
            return replace(state, calm_since=now), (), wait
        if now - state.calm_since >= CALM_SECONDS * 4 ** max(0, len(state.episodes) - 1):
            return replace(state, rung=0, rung_since=now, calm_since=None), act("calm", "memory is back"), wait
    return state, (), wait


@dataclass(frozen=True)
class Look:
    """What this reading says about memory, in the terms the ladder is decided in."""

    now: float
    headroom: int
    next_look_seconds: float
    """When the next reading can be expected, from what was asked for and how late this one was."""
    seconds_to_floor: float
    """At the rate of the last half second; infinite when memory does not fall."""
    slow_seconds_to_floor: float
    """At the rate of the last ten seconds."""
    gap_seconds: float
    """How long nothing was read, when that is out of the ordinary; else 0."""
    pressed_seconds: float
    """For how long the machine has done little but move pages."""


def _wanted_rung(limits: GuardLimits, state: MemoryState, look: Look) -> tuple[int, str]:
    """The rung this reading calls for, and why."""
    headroom, gap, pressed = look.headroom, look.gap_seconds, look.pressed_seconds
    floor, shed = format_bytes(limits.floor_bytes), format_bytes(limits.shed_bytes)
    short = headroom <= limits.shed_bytes
    if headroom <= limits.floor_bytes + limits.floor_margin_bytes:
        return 3, f"headroom is about to fall below the floor of {floor}"
    lead = LOOK_FACTOR * look.next_look_seconds + limits.kill_seconds
    if (
        look.seconds_to_floor <= lead
        and (state.falling_intervals >= 2 or short)
        and not _been_here(limits, state, headroom)
    ):
        return 3, f"the floor of {floor} would be passed before the next look"
    if gap and short:
        return 3, f"no reading for {gap:.0f} s while memory is short: the machine is wedging"
    if headroom <= limits.stop_bytes and state.short_readings >= 2:
        return 2, f"headroom is below {format_bytes(limits.stop_bytes)}"
    shed_in_vain = state.rung >= 1 and look.now - state.rung_since >= SHED_SECONDS
    near_seconds = NEAR_SECONDS if shed_in_vain else VERY_NEAR_SECONDS
    if short and look.slow_seconds_to_floor <= near_seconds and len(state.slow) >= 4:
        return 2, f"headroom is below {shed} and still falling"
    if pressed >= limits.pressure_stop_seconds:
        return 2, f"the machine has been thrashing for {pressed:.0f} s"
    if state.short_readings >= 2:
        return 1, f"headroom is below {shed}"
    if pressed >= limits.pressure_shed_seconds:
        return 1, f"the machine has been thrashing for {pressed:.0f} s"
    if gap and headroom < 2 * limits.shed_bytes:
        return (2 if state.rung else 1), f"no reading for {gap:.0f} s while memory is short"
    return 0, ""


Points = tuple[tuple[float, int], ...]


def _remember(state: MemoryState, now: float, headroom: int) -> tuple[Points, Points]:
    """The two histories with this reading added; neither grows beyond a few points."""
    recent = (*(point for point in state.recent[-15:] if now - point[0] <= 2.0), (now, headroom))
    if len(recent) == 1 and state.recent:
        recent = (state.recent[-1], (now, headroom))
    slow = state.slow
    if not slow or now - slow[-1][0] >= 0.45:
        slow = (*(point for point in slow[-23:] if now - point[0] <= SLOW_WINDOW_SECONDS), (now, headroom))
    return recent, slow


def _remember_trough(state: MemoryState, now: float, headroom: int) -> tuple[int, tuple[float, int] | None]:
    """A depth the run has been at and came back from is no news: a sampler that wakes and sleeps does that at every step."""
    lowest = headroom if state.lowest is None else min(state.lowest, headroom)
    trough = state.trough
    if trough is not None and now - trough[0] > TROUGH_SECONDS:
        trough = None
    if headroom > lowest * REBOUND_FACTOR and state.rung == 0:
        return headroom, (now, lowest if trough is None else min(lowest, trough[1]))
    return lowest, trough


def _been_here(limits: GuardLimits, state: MemoryState, headroom: int) -> bool:
    planned = limits.expected_low_bytes is not None and headroom >= limits.expected_low_bytes
    return planned or (state.trough is not None and headroom >= state.trough[1])


def _fall_rate(recent: Points, window_seconds: float) -> float:
    """Bytes per second lost over the window, no more than twice what the last interval shows, so that a fall that has
    ended is not carried on."""
    if len(recent) < 2:
        return 0.0
    (previous_at, previous), (now, headroom) = recent[-2], recent[-1]
    last_rate = (previous - headroom) / (now - previous_at)
    start = recent[-2]
    for point in reversed(recent[:-1]):
        if now - point[0] > window_seconds * 1.2:
            break
        start = point
    window_rate = (start[1] - headroom) / (now - start[0])
    return max(0.0, min(window_rate, 2 * last_rate))


def _slow_rate(slow: Points) -> float:
    """Bytes per second lost over ten seconds, no more than twice what the last two show."""
    if len(slow) < 4:
        return 0.0
    (first_at, first), (recent_at, recent), (now, headroom) = slow[0], slow[-4], slow[-1]
    return max(0.0, min((first - headroom) / (now - first_at), 2 * (recent - headroom) / (now - recent_at)))


def _next_wait(limits: GuardLimits, headroom: int, to_floor: float) -> float:
    if to_floor <= URGENT_SECONDS:
        return limits.urgent_sample_seconds
    if headroom <= 1.25 * limits.shed_bytes:
        return limits.short_sample_seconds
    if headroom <= 2 * limits.shed_bytes or to_floor <= NEAR_SECONDS:
        return limits.fast_sample_seconds
    return limits.sample_seconds


def _pressed_since(limits: GuardLimits, state: MemoryState, reading: Reading, headroom: int) -> float | None:
    """Since when the machine has done little but move pages. With memory to spare it is somebody else's limit that bites."""
    host = reading.host
    full = host.psi_memory_full_percent
    if full is None:
        swapping = min(host.swap_in_bytes_per_second or 0.0, host.swap_out_bytes_per_second or 0.0)
        pressed = swapping >= SWAP_BYTES_PER_SECOND
    else:
        pressed = full >= limits.pressure_percent
    if not pressed or headroom >= PRESSURE_FACTOR * limits.shed_bytes:
        return None
    return reading.monotonic if state.pressed_since is None else state.pressed_since


def _before(reading: Reading, look: Look, rate: float) -> dict[str, Any]:
    """The readings an action rests on, as its event keeps them."""
    near = min(look.seconds_to_floor, look.slow_seconds_to_floor)
    rss = None if reading.worker is None else reading.worker.rss_bytes
    return {
        "headroom_gib": round(look.headroom / GIB, 3),
        "headroom_source": reading.headroom_source,
        "falling_gib_per_second": round(rate / GIB, 3),
        "seconds_to_floor": None if near == float("inf") else round(near, 2),
        "worker_rss_gib": None if rss is None else round(rss / GIB, 3),
        "others_gib": _others_gib(reading),
        "psi_memory_full_percent": reading.host.psi_memory_full_percent,
        "gap_seconds": round(look.gap_seconds, 2),
    }


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
