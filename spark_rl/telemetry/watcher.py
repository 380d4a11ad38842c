"""Rules over a moving window: each finding is said once when it begins and once when it ends.

In: readings one by one. Out: `Notice`s. Hysteresis: a finding that stands is judged by looser thresholds, and ends only
when it has not been seen for half a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from spark_rl.telemetry.findings import Finding, Rule, Thresholds
from spark_rl.telemetry.reading import Reading
from spark_rl.telemetry.rules_gpu import GPU_RULES
from spark_rl.telemetry.rules_host import HOST_RULES

WINDOW_SECONDS = 600.0
SPACING_SECONDS = 1.8
"""Readings kept in the window are at least this far apart: at most 334 of them."""
NUM_KEPT = 3
"""Readings that stay in the window however old they are."""
END_SECONDS = 30.0


@dataclass(frozen=True)
class Notice:
    """The beginning or the end of a finding."""

    state: Literal["begin", "end"]
    t: float
    finding: Finding

    def to_row(self) -> dict[str, Any]:
        """For events.jsonl."""
        finding = self.finding
        return {
            "event": "telemetry_finding",
            "state": self.state,
            "rule": finding.rule,
            "subject": finding.subject,
            "severity": finding.severity,
            "message": finding.summary if self.state == "begin" else f"over: {finding.summary}",
            "evidence": dict(finding.evidence),
            "advice": finding.advice,
        }


class Watcher:
    """Keeps the window and what stands. Rules about a GPU see a window of that GPU alone."""

    def __init__(
        self,
        thresholds: Thresholds | None = None,
        host_rules: Iterable[Rule] = HOST_RULES,
        gpu_rules: Iterable[Rule] = GPU_RULES,
        spacing_seconds: float = SPACING_SECONDS,
    ) -> None:
        self.thresholds = thresholds or Thresholds()
        self._host_rules = tuple(host_rules)
        self._gpu_rules = tuple(gpu_rules)
        self._spacing_seconds = spacing_seconds
        self._window: list[Reading] = []
        self._gpu_windows: dict[int, list[Reading]] = {}
        self._standing: dict[tuple[Rule, int | None], tuple[Finding, float]] = {}

    @property
    def standing(self) -> tuple[Finding, ...]:
        """The findings that hold now."""
        return tuple(finding for finding, _ in self._standing.values())

    def observe(self, reading: Reading) -> tuple[Notice, ...]:
        """Notices of this pass. Readings that follow each other faster than the window's spacing are passed over."""
        if self._window and reading.monotonic - self._window[-1].monotonic < self._spacing_seconds:
            return ()
        _push(self._window, reading)
        notices = [notice for rule in self._host_rules for notice in self._judge(rule, None, self._window, reading)]
        for gpu in reading.gpus:
            window = self._gpu_windows.setdefault(gpu.index, [])
            _push(window, reading if len(reading.gpus) == 1 else replace(reading, gpus=(gpu,)))
            notices += [notice for rule in self._gpu_rules for notice in self._judge(rule, gpu.index, window, reading)]
        return tuple(notices)

    def _judge(self, rule: Rule, index: int | None, window: Sequence[Reading], reading: Reading) -> Iterator[Notice]:
        standing = self._standing.get((rule, index))
        finding = rule(window, self.thresholds, standing is not None)
        if finding is not None:
            worse = standing is None or (finding.severity == "severe" and standing[0].severity != "severe")
            if worse:
                yield Notice("begin", reading.t, finding)
            kept = finding if worse or standing is None else standing[0]
            self._standing[(rule, index)] = (kept, reading.monotonic)
        elif standing is not None and reading.monotonic - standing[1] >= END_SECONDS:
            del self._standing[(rule, index)]
            yield Notice("end", reading.t, standing[0])


def findings_of(readings: Iterable[Reading], thresholds: Thresholds | None = None) -> tuple[Notice, ...]:
    """Every notice of a recorded stretch of readings."""
    watcher = Watcher(thresholds)
    return tuple(notice for reading in readings for notice in watcher.observe(reading))


def _push(window: list[Reading], reading: Reading) -> None:
    num_old = 0
    while num_old < len(window) and reading.monotonic - window[num_old].monotonic > WINDOW_SECONDS:
        num_old += 1
    # A gap longer than the window would empty it: the last readings before the gap are what shows it.
    del window[: max(0, min(num_old, len(window) - NUM_KEPT))]
    window.append(reading)
