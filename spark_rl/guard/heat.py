"""Heat: pause between steps, then stop, then kill. Pure: `decide_heat(limits, state, reading) -> (state, actions)`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from spark_rl.guard.action import HALF_HOUR, Action, ActionKind
from spark_rl.guard.limits import GuardLimits
from spark_rl.telemetry.reading import Reading


@dataclass(frozen=True)
class HeatState:
    rung: int = 0
    """0 nothing, 1 paused, 2 stop asked, 3 killed."""
    rung_since: float = 0.0
    hot_since: float | None = None
    very_hot_since: float | None = None
    killing_since: float | None = None
    pauses: tuple[float, ...] = ()


def decide_heat(limits: GuardLimits, state: HeatState, reading: Reading) -> tuple[HeatState, tuple[Action, ...]]:
    now, margin = reading.monotonic, reading.heat_margin_c
    celsius = max((gpu.temperature_c for gpu in reading.gpus if gpu.temperature_c is not None), default=None)
    if (margin is None and celsius is None) or state.rung == 3:
        return replace(state, hot_since=None, very_hot_since=None, killing_since=None), ()
    margin_c = float("inf") if margin is None else margin
    gpu_c = float("-inf") if celsius is None else celsius
    hot = margin_c <= limits.pause_margin_c or gpu_c >= limits.pause_celsius
    if not hot and state.rung == 0 and state.hot_since is None:
        return state, ()
    state = replace(
        state,
        hot_since=_since(state.hot_since, hot, now),
        very_hot_since=_since(
            state.very_hot_since, margin_c <= limits.stop_margin_c or gpu_c >= limits.stop_celsius, now
        ),
        killing_since=_since(state.killing_since, margin_c <= limits.kill_margin_c, now),
    )
    cool = margin_c >= limits.resume_margin_c and gpu_c <= limits.resume_celsius

    def act(kind: ActionKind, rung: int, words: str, **changes: Any) -> tuple[HeatState, tuple[Action, ...]]:
        before = {
            "gpu_temperature_c": celsius,
            "margin_c": margin,
            "hottest_zone_c": reading.host.hottest_zone_c,
            "power_watts": max((gpu.power_watts for gpu in reading.gpus if gpu.power_watts is not None), default=None),
        }
        known = [] if celsius is None else [f"GPU {gpu_c:.0f} °C"]
        known += [] if margin is None else [f"{margin_c:.0f} °C below a slowdown or shutdown temperature"]
        action = Action(kind, "heat", f"{words} ({', '.join(known)})", before)
        return replace(state, rung=rung, rung_since=now, **changes), (action,)

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
