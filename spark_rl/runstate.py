"""One frozen picture of a run, read from its directory: what every viewer draws. Reads only; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from spark_rl.errors import ExitCode
from spark_rl.rundir import RunDir, has_torn_tail, read_json, read_jsonl


@dataclass(frozen=True)
class RunState:
    """The run as its files tell it now."""

    run: RunDir
    recipe: Mapping[str, Any]
    status: str
    """created, running, orphaned (the supervisor is gone, the worker goes on), finished, stopped, refused, failed, killed"""
    cause: str | None
    """Why it is not running any more, in words."""
    phase: str | None
    """The last phase that began: load, probe, inspect, eval-before, train, eval-after, save."""
    phase_progress: tuple[int, int] | None
    """(done, of) within the phase."""
    step: int
    max_steps: int | None
    """As the recipe says; None when it does not."""
    metrics: tuple[Mapping[str, Any], ...]
    """One row a step, contiguous; a step that was run again after a resume appears once, as it was run last."""
    events: tuple[Mapping[str, Any], ...]
    telemetry: Mapping[str, Any] | None
    """The last sensor pass."""
    num_skipped: int
    """Torn or broken lines over all files."""
    updated_seconds: float | None
    """UTC time of the newest row."""


def read_run(run: RunDir) -> RunState:
    """Read every file of a run. Raises RunDirError for a newer schema or an unreadable file."""
    recipe = read_json(run.recipe) or {}
    own, worker = read_jsonl(run.events), read_jsonl(run.worker_events)
    metrics, telemetry = read_jsonl(run.metrics), read_jsonl(run.telemetry)
    files = (run.events, run.worker_events, run.metrics, run.telemetry)
    torn = sum(has_torn_tail(path) for path in files)
    events = tuple(sorted((*own.rows, *worker.rows), key=_time_of))
    processes = read_json(run.processes) or {}
    status, cause = judge_status(events, processes)
    rows = latest_by_step(metrics.rows)
    progress = [row for row in events if row.get("event") == "phase_progressed" and {"done", "of"} <= row.keys()]
    phases = [row for row in events if row.get("event") == "phase_started" and "phase" in row]
    phase = str(phases[-1]["phase"]) if phases else None
    times = [row["t"] for row in (*events, *metrics.rows, *telemetry.rows) if isinstance(row.get("t"), int | float)]
    return RunState(
        run=run,
        recipe=recipe,
        status=status,
        cause=cause,
        phase=phase,
        phase_progress=(progress[-1]["done"], progress[-1]["of"])
        if progress and progress[-1].get("phase") == phase
        else None,
        step=int(rows[-1]["step"]) if rows else 0,
        max_steps=max_steps_of(recipe),
        metrics=rows,
        events=events,
        telemetry=telemetry.rows[-1] if telemetry.rows else None,
        num_skipped=own.num_skipped + worker.num_skipped + metrics.num_skipped + telemetry.num_skipped + torn,
        updated_seconds=max(times, default=None),
    )


def _time_of(row: Mapping[str, Any]) -> float:
    time = row.get("t")
    return time if isinstance(time, int | float) else 0.0


def max_steps_of(recipe: Mapping[str, Any]) -> int | None:
    """The number of steps that a saved recipe asks for; None when it does not say."""
    grpo = recipe.get("grpo")
    asked = grpo.get("max_steps") if isinstance(grpo, Mapping) else None
    return asked if isinstance(asked, int) and asked > 0 else None


def latest_by_step(rows: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Rows with a step, in order of steps. When a step occurs again (a resume), it and everything after is replaced."""
    kept: list[Mapping[str, Any]] = []
    for row in rows:
        step = row.get("step")
        if not isinstance(step, int):
            continue
        while kept and kept[-1]["step"] >= step:
            kept.pop()
        kept.append(row)
    return tuple(kept)


def judge_status(events: Sequence[Mapping[str, Any]], processes: Mapping[str, Any]) -> tuple[str, str | None]:
    """Status and cause from the events and from which processes still live."""
    starts = [index for index, row in enumerate(events) if row.get("event") == "supervisor_started"]
    current = events[starts[-1] :] if starts else events
    ends = [row for row in current if row.get("event") == "run_ended"]
    if ends:
        code, cause = ends[-1].get("exit_code"), ends[-1].get("cause")
        names = {ExitCode.OK: "finished", ExitCode.REFUSED: "refused", ExitCode.DOES_NOT_FIT: "refused"}
        if ends[-1].get("stopped"):
            return "stopped", cause
        return (names.get(ExitCode(code), "failed") if code in list(ExitCode) else "failed"), cause
    supervisor, worker = is_alive(processes.get("supervisor")), is_alive(processes.get("worker"))
    if supervisor:
        return "running", None
    if worker:
        return "orphaned", "the supervisor is gone; the worker saves a checkpoint at the next step and exits"
    if starts:
        worker_ends = [row for row in current if row.get("event") == "worker_ended"]
        if worker_ends:
            return "killed", f"the supervisor was killed; the worker ended: {worker_ends[-1].get('cause')}"
        return "killed", "supervisor and worker were killed or the machine went down"
    return "created", None


def is_alive(process: Mapping[str, Any] | None) -> bool:
    """Whether the recorded process still runs. The start time tells it from a later one with the same number."""
    if not process:
        return False
    try:
        found = psutil.Process(int(process["pid"]))
        same = abs(found.create_time() - float(process["create_time"])) < 1.0
        return same and found.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, KeyError, TypeError, ValueError, OverflowError):
        return False


def describe_process(pid: int) -> dict[str, Any]:
    """What `is_alive` needs later. Raises psutil.NoSuchProcess when it has gone already."""
    return {"pid": pid, "create_time": psutil.Process(pid).create_time()}


def tail_of(path: Path, num_lines: int = 12) -> list[str]:
    """The last lines of a log, for an error message."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 16_384))
            return file.read().decode("utf-8", errors="replace").splitlines()[-num_lines:]
    except OSError:
        return []
