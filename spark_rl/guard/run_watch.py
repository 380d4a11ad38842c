"""Beside a run: reads the sensors at the guard's pace, writes telemetry.jsonl and events, carries the guard's decisions out.

In: the run, the worker's pid, the recipe's [guard] values; sensors, clock and effects can be given. Out: `step()` does one
pass and says how long to wait; `stopped_because` tells, after the worker's end, that it was the guard.
Acting comes first, writing after: on a machine that is running out, a write may take longer than the memory lasts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from spark_rl.errors import RunDirError
from spark_rl.guard import effects
from spark_rl.guard.action import Action
from spark_rl.guard.decide import Guard
from spark_rl.guard.limits import GuardLimits, limits_for
from spark_rl.telemetry.bandwidth import Bandwidth, from_counter
from spark_rl.telemetry.findings import Thresholds
from spark_rl.telemetry.reading import Reading
from spark_rl.telemetry.watcher import Notice, Watcher

BUSY_ROW_SECONDS = 0.1
"""Rows of telemetry.jsonl are at least this far apart, also while the guard looks thirty times a second."""
ROLLOUT_SECONDS = 5.0
"""Between looks at metrics.jsonl for new rollouts."""
AFTER_SECONDS = {"shed": 30.0, "stop": 5.0, "kill": 0.5, "pause": 30.0, "resume": 5.0, "calm": 0.0}
"""When the readings after an action are recorded."""


class Rows(Protocol):
    """A file of the run that rows are appended to."""

    def append(self, row: Mapping[str, Any]) -> None: ...


class Rollouts(Protocol):
    """Memory bandwidth by the run's own metrics."""

    newest: Bandwidth | None
    peak_bytes_per_second: float | None

    def look(self) -> tuple[Notice, ...]: ...


class Sensors(Protocol):
    def read(self) -> Reading: ...


@dataclass(frozen=True)
class WorkerControl:
    """How the worker is reached."""

    ask: Callable[[str], None]
    """"shed", "stop", "pause" or "resume", read by the worker at its next step boundary."""
    is_training: Callable[[], bool]
    """False while it loads, probes or evaluates: it has no step boundaries then, and nothing to save."""
    terminate: Callable[[], Any]
    kill: Callable[[], Any]


class RunWatch:
    """One per supervised worker."""

    def __init__(
        self,
        sensors: Sensors,
        control: WorkerControl,
        events: Rows,
        telemetry: Rows,
        *,
        settings: Mapping[str, float | None] | None = None,
        planned_peak_bytes: int | None = None,
        unified: bool = False,
        rollouts: Rollouts | None = None,
        row_seconds: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`settings`: the recipe's [guard]. `planned_peak_bytes`: fit's peak where host and device are one pool.
        `unified`: known already, so that a driver that hangs from the start does not lower the floors."""
        self._sensors = sensors
        self._control = control
        self._events = events
        self._telemetry = telemetry
        self._settings = settings
        self._planned_peak_bytes = planned_peak_bytes
        self._unified = unified
        self._rollouts = rollouts
        self._next_rollout_look = float("-inf")
        self._row_seconds = row_seconds
        self._clock = clock
        self._ballast = effects.Ballast()
        self._watcher = Watcher()
        self._guard: Guard | None = None
        self._next_row = float("-inf")
        self._pending: list[tuple[float, Action]] = []
        self._last: Reading | None = None
        self.stopped_because: Action | None = None
        """The stop or kill that the guard ordered, if it did."""
        self.write_failure: str | None = None
        """Set when the run directory could not be written (a full disk); guarding goes on."""

    @property
    def limits(self) -> GuardLimits | None:
        """None before the first pass."""
        return None if self._guard is None else self._guard.limits

    def step(self) -> float:
        """One pass. Returns the seconds to wait before the next."""
        reading = self._sensors.read()
        self._last = reading
        guard = self._guard
        if guard is None or (reading.unified and not self._unified):
            guard = self._begin(reading)
        actions = guard.observe(reading)
        for action in actions:
            self._carry_out(action)
        now = self._clock()
        for action in actions:
            self._write(self._events, {"event": "guard_acted", **_row_of(action)})
            self._pending.append((now + AFTER_SECONDS[action.kind], action))
        self._record_effects(reading, now)
        if actions or now >= self._next_row:
            self._write(self._telemetry, self._row_of_pass(reading, now))
            eager = guard.next_seconds < guard.limits.sample_seconds or bool(self._pending)
            self._next_row = now + (max(BUSY_ROW_SECONDS, guard.next_seconds) if eager else self._row_seconds)
        for notice in self._watcher.observe(reading):
            self._write(self._events, notice.to_row())
        return guard.next_seconds

    def _row_of_pass(self, reading: Reading, now: float) -> dict[str, Any]:
        """The row of telemetry.jsonl: the reading, and the memory bandwidth with the word how it was had: counted where the
        device counts, else derived from the last rollout."""
        row = reading.to_row()
        if self._rollouts is None:
            return row
        if now >= self._next_rollout_look:
            self._next_rollout_look = now + ROLLOUT_SECONDS
            for notice in self._rollouts.look():
                self._write(self._events, notice.to_row())
        busy_percent = reading.gpus[0].memory_utilization_percent if reading.gpus else None
        shown = from_counter(busy_percent, self._rollouts.peak_bytes_per_second) or self._rollouts.newest
        row["bandwidth"] = None if shown is None else asdict(shown)
        return row

    def finish(self) -> None:
        """After the worker's end: one more row, and the readings after whatever was still pending."""
        reading = self._sensors.read()
        self._write(self._telemetry, self._row_of_pass(reading, float("inf")))
        self._record_effects(reading, float("inf"))

    def _begin(self, reading: Reading) -> Guard:
        """The limits depend on what the first reading shows: unified or not, and the tightest ceiling. A driver that answers
        only later may raise them once more."""
        total = min((ceiling.limit_bytes for ceiling in reading.ceilings), default=None)
        self._unified = self._unified or reading.unified
        limits = limits_for(self._unified, total, self._settings)
        if self._planned_peak_bytes is not None and reading.headroom_bytes is not None:
            planned = reading.headroom_bytes - self._planned_peak_bytes
            limits = replace(limits, expected_low_bytes=max(planned, limits.shed_bytes))
        guard = self._guard or Guard(limits)
        guard.limits = limits
        self._guard = guard
        self._watcher = Watcher(Thresholds(limits.shed_bytes, limits.floor_bytes))
        self._write(
            self._events,
            {
                "event": "guard_started",
                "message": limits.describe(),
                "shed_bytes": limits.shed_bytes,
                "stop_bytes": limits.stop_bytes,
                "floor_bytes": limits.floor_bytes,
                "expected_low_bytes": limits.expected_low_bytes,
                "headroom_source": reading.headroom_source,
                "headroom_bytes": reading.headroom_bytes,
            },
        )
        return guard

    def _carry_out(self, action: Action) -> None:
        if action.kind == "kill":
            self._control.kill()
            self._ballast.drop()
            self.stopped_because = action
        elif action.kind == "stop":
            self.stopped_because = action
            if self._control.is_training():
                self._ask("stop")
            else:
                self._control.terminate()
        elif action.kind in ("shed", "pause", "resume"):
            self._ask(action.kind)

    def _ask(self, request: str) -> None:
        try:
            self._control.ask(request)
        except RunDirError as error:
            self.write_failure = error.message

    def _record_effects(self, reading: Reading, now: float) -> None:
        due = [action for moment, action in self._pending if moment <= now]
        self._pending = [(moment, action) for moment, action in self._pending if moment > now]
        for action in due:
            headroom = reading.headroom_bytes
            after = {
                "headroom_gib": None if headroom is None else round(headroom / 1024**3, 3),
                "headroom_source": reading.headroom_source,
                "margin_c": reading.heat_margin_c,
            }
            row = {"event": "guard_effect", "action": action.kind, "cause": action.cause, "before": dict(action.before)}
            self._write(self._events, {**row, "after": after})

    def _write(self, rows: Rows, row: Mapping[str, Any]) -> None:
        """A run directory that cannot be written must not end the guarding of the machine."""
        try:
            rows.append(row)
        except RunDirError as error:
            self.write_failure = error.message


def _row_of(action: Action) -> dict[str, Any]:
    return {"action": action.kind, "cause": action.cause, "message": action.reason, "before": dict(action.before)}
