"""A run as text: one sentence an event, one line a step, a table of runs. Pure functions of what the files say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_rl.rundir import RunDir, read_jsonl
from spark_rl.runstate import RunState
from spark_rl.stats import wilson_interval
from spark_rl.units import NOT_AVAILABLE, format_seconds

PHASE_WORDS = {
    "load": "loading the model",
    "probe": "probe: can the model succeed sometimes?",
    "inspect": "inspection: drawing completions for a person to read",
    "eval-before": "evaluation on held-out prompts, before training",
    "train": "training with GRPO",
    "save": "saving the trained model",
    "eval-after": "evaluation on the same held-out prompts, after training",
}


def event_sentence(row: Mapping[str, Any]) -> str | None:
    """What an event tells a person; None for those that only machines need."""
    event = row.get("event")
    if event == "phase_started":
        return PHASE_WORDS.get(str(row.get("phase")), str(row.get("phase")))
    if event in ("probe_judged", "data_noted", "setting_replaced"):
        return str(row.get("message"))
    if event == "guard_started":
        return f"guard: {row.get('message')}"
    if event == "guard_acted":
        return f"guard: {row.get('action')}: {row.get('message')}"
    if event == "memory_shed":
        return f"memory given back: {row.get('message')}"
    if event == "telemetry_finding":
        advice = f" -> {row['advice']}" if row.get("advice") and row.get("state") == "begin" else ""
        return f"{row.get('severity')}: {row.get('message')}{advice}"
    if event == "evaluated":
        return f"held-out success {row.get('when')} training: {success_text(row['successes'], row['n'])}"
    if event == "samples_drawn":
        return f"{row.get('num_samples')} completions drawn"
    if event == "signed":
        return f"inspection signed by {row.get('reader')}"
    if event == "resumed_from":
        return f"going on from {row.get('path')}"
    if event == "checkpoint_saved":
        return f"checkpoint at step {row.get('step')}"
    if event in ("paused", "resumed"):
        return f"{event} at step {row.get('step')}"
    if event == "stopped":
        return f"stopped at step {row.get('step')}: {row.get('reason')}"
    if event == "run_ended":
        return f"ended: {row['cause']}" if row.get("cause") else None
    return None


def success_text(successes: int, n: int) -> str:
    """A share with its 95 % Wilson interval: "39.2 % [34.6, 44.1] (157/400)"."""
    if not n:
        return NOT_AVAILABLE
    interval = wilson_interval(successes, n)
    return f"{successes / n:.1%} [{interval.low:.1%}, {interval.high:.1%}] ({successes}/{n})".replace("%", " %")


def step_line(row: Mapping[str, Any], max_steps: int | None, seconds_left: float | None) -> str:
    """One training step: reward and its parts, KL, length, time."""
    parts = [
        f"{key.split('/')[1]} {_number(row[key])}"
        for key in row
        if key.startswith("rewards/") and key.endswith("/mean")
    ]
    pieces = [step_text(row["step"], max_steps), f"reward {_number(row.get('reward'))}"]
    pieces += [f"({', '.join(parts)})"] if parts else []
    pieces += [f"kl {_number(row['kl'])}"] if "kl" in row else []
    pieces += [f"{format_seconds(row.get('step_time'))}/step"] if "step_time" in row else []
    pieces += [f"{format_seconds(seconds_left)} left"] if seconds_left is not None else []
    return "  ".join(pieces)


def step_text(step: int, max_steps: int | None) -> str:
    """step 3/40, or step 3/N/A where the recipe does not say how many there are."""
    return f"step {step}/{NOT_AVAILABLE if max_steps is None else max_steps}"


def seconds_left(rows: Sequence[Mapping[str, Any]], max_steps: int | None) -> float | None:
    """From the wall time of the last steps; None until two are known, and where the end is not."""
    if max_steps is None:
        return None
    recent = [row for row in rows[-20:] if isinstance(row.get("t"), int | float)]
    if len(recent) < 2 or recent[-1]["step"] <= recent[0]["step"]:
        return None
    a_step = (recent[-1]["t"] - recent[0]["t"]) / (recent[-1]["step"] - recent[0]["step"])
    return max(0.0, float(a_step * (max_steps - recent[-1]["step"])))


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else NOT_AVAILABLE


@dataclass(frozen=True)
class Line:
    text: str
    transient: bool
    """A progress line that the next one may overwrite on a terminal."""


class Follower:
    """Turns what is new in a run directory into lines, call after call."""

    def __init__(self, run: RunDir, max_steps: int | None, from_start: bool = True) -> None:
        self._run, self._max_steps = run, max_steps
        self._offsets = dict.fromkeys((run.events, run.worker_events, run.metrics), 0)
        self._steps: list[Mapping[str, Any]] = []
        if not from_start:
            for path in self._offsets:
                self._offsets[path] = read_jsonl(path).offset

    def new_lines(self) -> Iterator[Line]:
        """Lines for rows that were not there at the last call."""
        for path in (self._run.worker_events, self._run.metrics, self._run.events):
            rows = self._read(path)
            yield from self._metric_lines(rows) if path == self._run.metrics else self._event_lines(rows)

    def _read(self, path: Any) -> Sequence[Mapping[str, Any]]:
        found = read_jsonl(path, self._offsets[path])
        self._offsets[path] = found.offset
        return found.rows

    def _event_lines(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Line]:
        for row in rows:
            if row.get("event") == "phase_progressed":
                yield Line(f"  {row['done']}/{row['of']}", transient=True)
            elif sentence := event_sentence(row):
                yield Line(sentence, transient=False)

    def _metric_lines(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Line]:
        for row in rows:
            self._steps.append(row)
            yield Line(
                "  " + step_line(row, self._max_steps, seconds_left(self._steps, self._max_steps)), transient=True
            )


def run_line(state: RunState) -> str:
    """One run in a list: name, status, phase or step."""
    where = step_text(state.step, state.max_steps) if state.step else (state.phase or "")
    reward = state.metrics[-1].get("reward") if state.metrics else None
    tail = f"  reward {_number(reward)}" if reward is not None else ""
    return f"{state.run.name:<44} {state.status:<9} {where}{tail}"


def run_json(state: RunState) -> dict[str, Any]:
    """The same for machines."""
    last = dict(state.metrics[-1]) if state.metrics else None
    return {
        "run": str(state.run.path),
        "status": state.status,
        "cause": state.cause,
        "phase": state.phase,
        "step": state.step,
        "max_steps": state.max_steps,
        "last_metrics": last,
        "telemetry": dict(state.telemetry) if state.telemetry else None,
        "skipped_lines": state.num_skipped,
        "updated": state.updated_seconds,
    }


def state_text(state: RunState) -> str:
    """A run on a few lines, for `watch --once` and the end of a run."""
    lines = [run_line(state)]
    lines += [f"cause: {state.cause}"] if state.cause else []
    if state.metrics:
        lines.append(step_line(state.metrics[-1], state.max_steps, seconds_left(state.metrics, state.max_steps)))
    lines += [f"{state.num_skipped} torn or broken lines were skipped"] if state.num_skipped else []
    return "\n".join(lines)
