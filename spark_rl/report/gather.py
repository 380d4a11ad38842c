"""Everything the page shows, read from a run directory into frozen content. Whatever is not there is None or empty.

In: a run directory, of a run in any state. Out: `Content`. Raises RunDirError only where a file cannot be used.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_rl.diagnose import Diagnosis, diagnose_run, log_of_run
from spark_rl.errors import RunDirError
from spark_rl.evaluate import Evaluation, evaluation_from_saved
from spark_rl.metrics import Log, read_sample_file
from spark_rl.report.samples import HeldoutView, SampleView, choose_samples, heldout_views
from spark_rl.report.text import value_text, visible
from spark_rl.rundir import RunDir, read_json
from spark_rl.runstate import RunState, read_run
from spark_rl.telemetry.summary import summary_of_run
from spark_rl.units import NOT_AVAILABLE, format_seconds, format_share

NOTABLE_P = 0.05
"""Below this a change of held-out success is called one."""

NOT_GIVEN = "not given"
"""Source of a value that no file sets."""

MAX_EVENTS = 80
"""Messages on the page; the rest is in the run's event files."""


@dataclass(frozen=True)
class RecipeRow:
    key: str
    value: str
    source: str
    reason: str

    @property
    def is_base(self) -> bool:
        """A base value, or one that nobody set."""
        return self.source in ("base", NOT_GIVEN)


@dataclass(frozen=True)
class Stage:
    """One phase of the run."""

    name: str
    clock: str
    duration: str


@dataclass(frozen=True)
class StepView:
    """Completions of one training step."""

    step: int
    samples: tuple[SampleView, ...]


@dataclass(frozen=True)
class Content:
    """One run as the page tells it."""

    name: str
    title: str
    status: str
    cause: str | None
    summary: str
    tone: str
    """good, bad or plain: what the summary's colour says beside its words."""
    facts: tuple[tuple[str, str], ...]
    log: Log
    cap: int | None
    evaluation: Evaluation | None
    diagnosis: Diagnosis
    probe: Mapping[str, Any] | None
    inspection: Mapping[str, Any] | None
    variant: Mapping[str, Any] | None
    """On what evidence a variant of GRPO was admitted; None for plain GRPO."""
    fit: Mapping[str, Any] | None
    effective: Mapping[str, Any] | None
    recipe: tuple[RecipeRow, ...]
    stages: tuple[Stage, ...]
    messages: tuple[tuple[str, str], ...]
    """(clock, words)"""
    early: StepView | None
    late: StepView | None
    heldout: tuple[HeldoutView, ...]
    written: str
    """When the page was made, UTC."""


def gather(run: RunDir, now_seconds: float | None = None) -> Content:
    """Read a run for its page."""
    state = read_run(run)
    saved = read_json(run.eval)
    evaluation = evaluation_from_saved(saved) if saved and saved.get("before") else None
    summary, tone = summarise(state, evaluation)
    task = read_json(run.task) or {}
    grpo = state.recipe.get("grpo") or {}
    before, after = (read_sample_file(run.path / "eval" / f"samples_{when}.jsonl") for when in ("before", "after"))
    early, late = _early_and_late(run)
    return Content(
        name=run.name,
        title=_title(state, task),
        status=status_words(state),
        cause=visible(state.cause, 2_000) if state.cause else None,
        summary=summary,
        tone=tone,
        facts=(*_facts(state, task, read_json(run.host) or {}), *summary_of_run(run.telemetry, state.metrics)),
        log=log_of_run(state),
        cap=grpo.get("max_completion_length"),
        evaluation=evaluation,
        diagnosis=diagnose_run(state),
        probe=read_json(run.probe),
        inspection=read_json(run.inspection),
        variant=read_json(run.variant),
        fit=read_json(run.fit),
        effective=read_json(run.effective),
        recipe=recipe_rows(state.recipe),
        stages=tuple(_stages(state)),
        messages=tuple(_messages(state.events)),
        early=early,
        late=late,
        heldout=heldout_views(before, after),
        written=_clock(time.time() if now_seconds is None else now_seconds, date=True) + " UTC",
    )


def summarise(state: RunState, evaluation: Evaluation | None) -> tuple[str, str]:
    """The run's result in one or two sentences, and its tone."""
    if evaluation is None:
        if state.status == "refused":
            return "The run was refused before training: " + visible(state.cause or "see the events", 2_000), "bad"
        return "Held-out success has not been measured yet.", "plain"
    before = evaluation.before
    if evaluation.after is None or evaluation.paired is None:
        words = f"Before training {before.successes} of {before.n} held-out prompts were solved ({format_share(before.rate)})."
        return words + " The trained model has not been evaluated yet.", "plain"
    after, paired = evaluation.after, evaluation.paired
    change = 100 * paired.change
    numbers = (
        f"from {format_share(before.rate)} to {format_share(after.rate)} on {after.n} prompts ({change:+.1f} points, 95 % interval "
        f"{100 * paired.interval.low:+.1f} to {100 * paired.interval.high:+.1f}; exact McNemar p = {paired.p_value:.2g})"
    )
    if paired.p_value >= NOTABLE_P:
        return f"Held-out success went {numbers}: no change that can be told from chance.", "plain"
    return f"Held-out success {'rose' if change > 0 else 'fell'} {numbers}.", "good" if change > 0 else "bad"


def status_words(state: RunState) -> str:
    """Where the run is, with its step."""
    if state.status == "created" or (not state.step and state.status == "running"):
        return f"{state.status}; no step yet" + (f", in phase {state.phase}" if state.phase else "")
    return f"{state.status} at step {state.step} of {NOT_AVAILABLE if state.max_steps is None else state.max_steps}"


def recipe_rows(recipe: Mapping[str, Any]) -> tuple[RecipeRow, ...]:
    """Every value of the recipe with its source and reason, in the recipe's order."""
    origins = recipe.get("provenance") or {}
    rows = []
    for section, values in recipe.items():
        if section == "provenance" or not isinstance(values, Mapping):
            continue
        for key, value in values.items():
            origin = origins.get(f"{section}.{key}") or {}
            # A file is named without its folders: the page may be shown to others.
            source = str(origin.get("source") or NOT_GIVEN).rsplit("/", 1)[-1]
            rows.append(RecipeRow(f"{section}.{key}", value_text(value), source, str(origin.get("reason") or "")))
    return tuple(rows)


def _title(state: RunState, task: Mapping[str, Any]) -> str:
    profile = (state.recipe.get("profile") or {}).get("title") or state.recipe.get("name") or state.run.name
    return f"{_task_name(task)}: {profile}" if task.get("path") else str(profile)


def _task_name(task: Mapping[str, Any]) -> str | None:
    return str(task["path"]).rsplit("/", 1)[-1].removesuffix(".toml") if task.get("path") else None


def _facts(state: RunState, task: Mapping[str, Any], host: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    recipe = state.recipe
    trained = [row for row in state.events if row.get("event") == "trained"]
    seconds = trained[-1].get("train_seconds") if trained else None

    def setting(section: str, key: str) -> str | None:
        value = (recipe.get(section) or {}).get(key)
        return None if value is None else value_text(value)

    facts = [
        ("Model", setting("model", "id")),
        ("Task", _task_name(task)),
        ("Engine", setting("engine", "name")),
        ("Tuning", setting("tuning", "method")),
        ("Rollouts", setting("rollout", "kind")),
        ("Group size", setting("grpo", "num_generations")),
        ("Learning rate", setting("grpo", "learning_rate")),
        ("Seed", setting("grpo", "seed")),
        ("Training time", format_seconds(seconds) if seconds is not None else None),
        ("Machine", str(host["name"]) if host.get("name") else None),
    ]
    return [(label, value) for label, value in facts if value is not None]


def _early_and_late(run: RunDir) -> tuple[StepView | None, StepView | None]:
    """Completions of the first and the last step that have any; one alone when there is only one."""
    files = sorted((path for path in run.samples.glob("*.jsonl") if path.stem.isdigit()), key=lambda p: int(p.stem))
    views = []
    for path in files[:1] + files[1:][-1:]:
        rows = read_sample_file(path)
        if rows:
            views.append(StepView(int(path.stem), choose_samples(rows)))
    return (views[0] if views else None), (views[1] if len(views) > 1 else None)


def _stages(state: RunState) -> Sequence[Stage]:
    marks = [
        (float(row["t"]), str(row["phase"]))
        for row in state.events
        if row.get("event") == "phase_started" and isinstance(row.get("t"), int | float) and row.get("phase")
    ]
    ends: list[float | None] = [*(start for start, _ in marks[1:]), state.updated_seconds]
    return [
        Stage(name, _clock(start), format_seconds(end - start) if end is not None else "N/A")
        for (start, name), end in zip(marks, ends, strict=False)
    ]


def _messages(events: Sequence[Mapping[str, Any]]) -> Sequence[tuple[str, str]]:
    """What the run said in words: settings replaced, data notes, guard actions, how it ended."""
    said = []
    for row in events:
        words = row.get("message") or row.get("cause") or row.get("reason")
        if words and isinstance(row.get("t"), int | float):
            said.append(
                (_clock(float(row["t"])), f"{str(row.get('event')).replace('_', ' ')}: {visible(str(words), 600)}")
            )
    return said[-MAX_EVENTS:]


def _clock(seconds: float, date: bool = False) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        raise RunDirError(f"{seconds} is not a time") from None
