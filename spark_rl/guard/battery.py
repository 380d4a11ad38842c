"""A battery for the guard: courses of memory and heat, most of them reported from real machines, played against it.

In: limits and a seed. Out: one row a case, the worst over all seeds. The guard sees readings at the pace it asks for,
with the jitter of a loaded machine; what it orders takes effect as late as on a real one; the course goes on meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

from spark_rl.guard.action import Action
from spark_rl.guard.decide import Guard
from spark_rl.guard.limits import GuardLimits, limits_for
from spark_rl.telemetry.reading import Ceiling, GpuReading, HostReading, Reading, WorkerReading
from spark_rl.units import GIB

Outcome = Literal["in time", "too late", "no action, rightly", "acted without need"]

TOTAL_GIB = 121.69
KILL_SECONDS = (0.03, 0.12)
"""From SIGKILL to the last allocation, on a loaded machine."""

Course = Callable[[float], float]
"""Seconds -> GiB of headroom if nobody acts."""


@dataclass(frozen=True)
class Case:
    name: str
    source: str
    """Where such a course was reported, or what it stands for."""
    course: Course
    seconds: float
    needs_action: bool
    limits: GuardLimits = field(default_factory=lambda: limits_for(True, None))
    host: Callable[[float], dict[str, Any]] = lambda _: {}
    """More of the host's readings at a time."""
    gpu: Callable[[float], dict[str, Any]] = lambda _: {}
    starved: tuple[float, float] | None = None
    """(from, until): the supervisor is not scheduled."""
    shed_gib: float = 0.0
    """What the worker gives back when asked to shed."""
    step_seconds: float = 30.0
    """How long the worker takes to its next step boundary, where it sheds or stops."""
    obeys: bool = True
    """False: the worker hangs and reacts to nothing but a kill."""
    pace: float | None = None
    """A recording's fixed spacing; None = the guard chooses."""
    slow: bool = False
    """Hours long: fewer seeds."""


@dataclass(frozen=True)
class Result:
    case: str
    acted_at_gib: float | None
    """Headroom when the action was ordered that ended the danger; None when nothing was ordered."""
    lowest_gib: float
    """Lowest true headroom until the danger was over."""
    floor_gib: float
    outcome: Outcome
    actions: tuple[str, ...]

    def to_row(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "acted_at_gib": None if self.acted_at_gib is None else round(self.acted_at_gib, 2),
            "floor_gib": round(self.floor_gib, 3),
            "outcome": self.outcome,
            "lowest_gib": round(self.lowest_gib, 2),
            "actions": list(self.actions),
        }


def play_case(case: Case, seed: int) -> Result:
    """One case with one seed's jitter."""
    chance = random.Random(f"{case.name}/{seed}")
    guard = Guard(case.limits)
    now = chance.uniform(0, 0.5)
    given_back, ends_at, shed_at = 0.0, float("inf"), float("inf")
    ordered: list[tuple[Action, float]] = []
    lowest, looked_until = float("inf"), 0.0
    while now < case.seconds:
        lowest = min(lowest, _lowest_between(case, looked_until, min(now, ends_at), given_back))
        looked_until = now
        if now >= ends_at:
            break
        if now >= shed_at:
            given_back, shed_at = given_back + case.shed_gib, float("inf")
        headroom = max(0.0, case.course(now) + given_back)
        for action in guard.observe(_reading(case, now, headroom)):
            ordered.append((action, headroom))
            if action.kind == "kill":
                ends_at = min(ends_at, now + chance.uniform(*KILL_SECONDS))
            elif action.kind == "stop" and case.obeys:
                ends_at = min(ends_at, now + chance.uniform(0.2, 1.0) * case.step_seconds)
            elif action.kind == "shed" and case.obeys:
                shed_at = now + chance.uniform(0.2, 1.0) * case.step_seconds
        wait = case.pace if case.pace is not None else _late(guard.next_seconds, chance)
        now += wait
        if case.starved and case.starved[0] <= now < case.starved[1]:
            now = case.starved[1]
        if ends_at < now:
            lowest = min(lowest, _lowest_between(case, looked_until, ends_at, given_back))
            break
    acts = [(action, headroom) for action, headroom in ordered if action.kind not in ("calm", "resume")]
    floor_gib = case.limits.floor_bytes / GIB
    if case.needs_action:
        outcome: Outcome = "in time" if acts and lowest >= floor_gib else "too late"
    else:
        outcome = "acted without need" if acts else "no action, rightly"
    return Result(
        case.name,
        acts[-1][1] if acts else None,
        lowest,
        floor_gib,
        outcome,
        tuple(f"{action.cause}: {action.kind}" for action, _ in ordered),
    )


def play_battery(num_seeds: int = 20, cases: Sequence[Case] | None = None) -> Iterator[Result]:
    """The worst result of every case over the seeds."""
    order: tuple[Outcome, ...] = ("no action, rightly", "in time", "acted without need", "too late")
    for case in cases if cases is not None else all_cases():
        results = [play_case(case, seed) for seed in range(max(2, num_seeds // 10) if case.slow else num_seeds)]
        yield max(results, key=lambda result: (order.index(result.outcome), -result.lowest_gib))


def _late(wanted: float, chance: random.Random) -> float:
    """What a loaded machine makes of a wait: a little more, and now and then a stall."""
    stall = chance.uniform(0.02, 0.08) if chance.random() < 0.05 else 0.0
    return wanted * chance.uniform(1.0, 1.3) + chance.uniform(0.0005, 0.01) + stall


def _lowest_between(case: Case, start: float, end: float, given_back: float) -> float:
    if end <= start:
        return float("inf")
    num_points = 2 if case.slow else max(2, min(40, int((end - start) / 0.01)))
    step = (end - start) / num_points
    return min(case.course(start + index * step) + given_back for index in range(num_points + 1))


def _reading(case: Case, now: float, headroom_gib: float) -> Reading:
    total = int(TOTAL_GIB * GIB)
    available = int(headroom_gib * GIB)
    host = HostReading(
        mem_total_bytes=total, mem_available_bytes=available, mem_free_bytes=available // 2, psi_memory_full_percent=0.0,
        swap_in_bytes_per_second=0.0, swap_out_bytes_per_second=0.0,
    )  # fmt: skip
    gpu = GpuReading(
        0, "NVIDIA GB10", True, utilization_percent=96.0, temperature_c=70.0, margin_c=25.0, power_watts=60.0
    )
    return Reading(
        t=1.78e9 + now,
        monotonic=now,
        host=replace(host, **case.host(now)),
        gpus=(replace(gpu, **case.gpu(now)),),
        worker=WorkerReading(1, 1, 20 * GIB),
        ceilings=(Ceiling("MemAvailable", total, available),),
    )


def through(*points: tuple[float, float]) -> Course:
    """The course along straight lines from point to point, held before the first and carried on after the last."""

    def course(t: float) -> float:
        if t <= points[0][0]:
            return points[0][1]
        for (t0, y0), (t1, y1) in pairwise(points):
            if t <= t1:
                return y0 + (y1 - y0) * (t - t0) / (t1 - t0)
        (t0, y0), (t1, y1) = points[-2], points[-1]
        return y1 + (y1 - y0) / (t1 - t0) * (t - t1)

    return course


def breathing(high: float, low: float, period: float, fall_seconds: float) -> Course:
    """A sampler that wakes and sleeps: down fast, held, up again, at every step."""

    def course(t: float) -> float:
        phase = t % period
        if phase < period * 0.4:
            return high
        if phase < period * 0.4 + fall_seconds:
            return high - (high - low) * (phase - period * 0.4) / fall_seconds
        return low if phase < period * 0.9 else high

    return course


def minus(first: Course, second: Course) -> Course:
    return lambda t: first(t) - second(t)


def healthy_course(seed: int = 0) -> Course:
    """Memory of a serving-like healthy week: levels between 13.5 and 40 GiB that change by the quarter hour, with noise."""

    def course(t: float) -> float:
        level = random.Random(f"{seed}/{int(t // 900)}").uniform(15.0, 40.0)
        return level + random.Random(f"{seed}/{int(t * 10)}").uniform(-1.5, 1.5)

    return course


def healthy_gpu(t: float) -> dict[str, Any]:
    """Temperature, margin and power as in the public week of a healthy unit: 50-86 °C, at most 101 W."""
    chance = random.Random(f"gpu/{int(t // 60)}")
    celsius = chance.choices((55, 65, 72, 78, 82, 85, 86), (14, 271, 142, 104, 45, 10, 1))[0]
    return {"temperature_c": float(celsius), "margin_c": 94.5 - celsius, "power_watts": chance.uniform(38, 101)}


def all_cases() -> list[Case]:
    """The battery: danger first, then courses that look like it and are none."""
    card = limits_for(False, int(64 * GIB))
    container = limits_for(False, int(8 * GIB))
    stairs: Course = lambda t: 40.0 - 2.0 * max(0, int((t - 5) / 0.3))  # noqa: E731
    growth: Course = lambda t: 60.0 - 0.25 * 1.5 ** max(0.0, t - 5)  # noqa: E731
    thrash = {"psi_memory_full_percent": 45.0, "swap_in_bytes_per_second": 3e8, "swap_out_bytes_per_second": 3e8}
    leak = through((0, 40), (6 * 3600, 4))
    danger = [
        Case("collapse 34 to 12.7 GiB in 1.5 s, going on", "dgx-spark-playbooks#116", through((20, 34.0), (21.5, 12.7)), 40, True),
        Case("the same, recorded every 0.5 s", "dgx-spark-playbooks#116", through((20, 34.0), (21.5, 12.7)), 40, True, pace=0.5),
        Case("the same, holding at 12.7 GiB for 2 s in between", "dgx-spark-playbooks#116", through((20, 34), (21.5, 12.7), (23.5, 12.7), (24.4, 0)), 40, True),
        Case("28.9 to 6.3 GiB in 10 s after loading", "vllm#56824", through((10, 28.9), (20, 6.3)), 60, True),
        Case("the same, recorded every 0.5 s", "vllm#56824", through((10, 28.9), (20, 6.3)), 60, True, pace=0.5),
        Case("18 GiB in the 10 s after a load, to 6.9 GiB", "GLM-5.3 discussion 7", through((30, 24.9), (40, 6.9), (60, 6.8)), 60, True),
        Case("profiling run eats 62 GiB in 12 s", "vllm#46307", through((8, 72), (20, 9.7)), 60, True),
        Case("slow leak over 6 h", "minefield trap 119, faster", leak, 6 * 3600, True, slow=True),
        Case("slow leak over 6 h under a run that breathes", "", lambda t: leak(t) + (6 if t % 60 < 30 else 0), 6 * 3600, True, slow=True),
        Case("swap thrash", "pygraphistry#1671", through((0, 14), (300, 13)), 300, True, host=lambda t: thrash if t > 60 else {}),
        Case("swap thrash without PSI", "", through((0, 14), (300, 13)), 300, True, host=lambda t: {**thrash, "psi_memory_full_percent": None} if t > 60 else {}),
        Case("telemetry gap of 6 s while memory falls", "vllm-ultimate-dgx-spark#9", through((10, 30), (70, 6)), 120, True, starved=(53, 59)),
        Case("telemetry gap of 10 minutes with memory short", "vllm-ultimate-dgx-spark#9", through((0, 11.5), (1300, 9.2)), 1300, True, starved=(60, 687), obeys=False, slow=True),
        Case("co-tenant loads 40 GiB at 2 GiB/s", "dgx-spark field reports", through((30, 45), (50, 5)), 90, True),
        Case("co-tenant grows by 3 GiB a minute", "dgx-spark field reports", through((30, 30), (630, 0)), 700, True, slow=True),
        Case("checkpoint spike 16 to 7 GiB in 1 s", "", through((30, 16), (31, 7), (40, 6)), 60, True),
        Case("chunks of 2 GiB every 0.3 s", "allocator growth", stairs, 30, True),
        Case("growth by half every second", "runaway cache", growth, 30, True),
        Case("collapse at the first reading", "resume on a full machine", through((0, 20), (1.2, 6)), 20, True),
        Case("33 GiB/s from 60 GiB", "engine wake-up gone wrong", through((10, 60), (11.8, 0)), 30, True),
        Case("collapse after an hour of healthy breathing", "", minus(breathing(40, 14, 60, 0.6), through((3599, 0), (3600, 0), (3601.5, 21.3))), 3640, True, slow=True),
        Case("worker that does not answer a stop", "hung worker", through((0, 12.5), (600, 9)), 900, True, obeys=False, slow=True),
        Case("host memory beside a card: loader leak", "dataloader leak", through((10, 20), (60, 1)), 120, True, limits=card),
        Case("host memory beside a card: 8 GiB/s of pinned buffers", "pinned buffers", through((10, 24), (13, 0)), 30, True, limits=card),
        Case("container limit of 8 GiB", "docker --memory", through((5, 6), (25, 0)), 60, True, limits=container),
        Case("heat: 91 °C and rising", "open-gpu-kernel-modules#1358", through((0, 40), (1, 40)), 120, True, gpu=lambda t: {"temperature_c": min(97, 86 + t / 10), "margin_c": 94.5 - min(97, 86 + t / 10)}),
    ]  # fmt: skip
    harmless = [
        Case("page cache full, MemAvailable fine", "unsloth#10704", through((0, 115.8), (1, 115.8)), 600, False, slow=True, host=lambda t: {"mem_free_bytes": int(max(2, 103 - t) * GIB)}),
        Case("model load 118 to 40 GiB at 5 GiB/s", "ordinary load", through((5, 118), (20.6, 40), (60, 40), (61, 40)), 120, False),
        Case("sampler wakes and sleeps, 45 to 14 GiB in 1 s, as fit said", "TRL colocate, sleep level 2", breathing(45, 14, 30, 1.0), 900, False, slow=True, limits=replace(limits_for(True, None), expected_low_bytes=int(13.5 * GIB))),
        Case("sampler wakes and sleeps, 45 to 14 GiB in 3 s, unannounced", "TRL colocate, sleep level 2", breathing(45, 14, 30, 3.0), 900, False, slow=True),
        Case("dip to 12.4 GiB and back", "checkpoint within the plan", through((10, 20), (20, 12.4), (22, 12.4), (25, 20), (26, 20)), 60, False),
        Case("laptop suspended for an hour", "telemetry gap with memory to spare", through((0, 60), (1, 60)), 4000, False, slow=True, starved=(100, 3700)),
        Case("seconds of pressure while loading", "", through((0, 40), (1, 40)), 120, False, host=lambda t: {"psi_memory_full_percent": 35.0} if 20 < t < 27 else {}),
        Case("small co-tenant beside the run", "desktop session", through((20, 40), (60, 36), (61, 36), (62, 36)), 120, False),
        Case("168 h of a healthy unit, read every 10 s", "djangodevreng/dgx-spark-benchmarks", healthy_course(), 168 * 3600, False, gpu=healthy_gpu, pace=10.0, slow=True),
    ]  # fmt: skip
    return [*danger, *harmless]
