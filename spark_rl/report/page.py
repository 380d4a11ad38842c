"""Content -> one HTML page: plots drawn, numbers worded, everything a model or user wrote escaped by the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from spark_rl.metrics import Log, metric_of, part_key
from spark_rl.metrics.groups import CEILING_SHARE, CORRECT, FLOOR_SHARE, PLATEAU_SHARE, ZERO_SHARE
from spark_rl.report.gather import Content, gather
from spark_rl.report.plots import Line, Plot, count_bars, interval_bars, line_plot
from spark_rl.report.text import value_text, visible
from spark_rl.rundir import RunDir, write_text_atomic
from spark_rl.stats import median_of
from spark_rl.units import format_bytes, format_seconds, format_share

TEMPLATES = Path(__file__).resolve().parents[1] / "data" / "report"

VISIBLE_SHARE = 0.02
"""A line of shares that never leaves the axis is not drawn."""

MAX_PARTS = 6
"""Reward parts in one drawing: as many as there are distinguishable lines."""


def write_report(run: RunDir, out: Path | None = None) -> Path:
    """Make the page of a run and say where it is. Raises RunDirError when it cannot be read or written."""
    path = out or run.report
    write_text_atomic(path, render_page(gather(run)))
    return path


def render_page(content: Content) -> str:
    """The whole page as text."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=format_share, visible=visible, setting=value_text, bytes=format_bytes)
    plots, missing = draw_curves(content.log, content.cap)
    return environment.get_template("page.html").render(
        run=content,
        style=Markup((TEMPLATES / "style.css").read_text(encoding="utf-8")),
        plots=plots,
        missing=missing,
        svg=Markup,
        bars=draw_evaluation(content),
        probe_bars=draw_probe(content.probe),
        fit_words=fit_words(content.fit, content.log),
        fit_phases=fit_phases(content.fit),
    )


def draw_curves(log: Log, cap: int | None) -> tuple[list[Plot], list[tuple[str, str]]]:
    """The drawings of a run, and what is not drawn with the reason."""
    parts = log.part_names
    wanted: list[tuple[str, Plot | None, str]] = [
        ("Reward", _plot("Reward", log, ["reward"]), "no row has a reward"),
        ("Reward parts", _plot("Reward parts", log, [part_key(name) for name in parts[:MAX_PARTS]]), "not logged"),
        ("Success", _plot("Success in training", log, [CORRECT]), "completions are not saved"),
        ("Groups without signal", _groups_plot(log), "neither completions nor reward_std are saved"),
        ("KL", _plot("KL to the start", log, ["kl"]), "not logged: beta is 0, or the engine leaves it out"),
        ("Entropy", _plot("Entropy", log, ["entropy"]), "this engine does not log it"),
        ("Lengths", _lengths_plot(log, cap), "not logged"),
        ("Gradient norm", _plot("Gradient norm", log, ["grad_norm"]), "not logged"),
    ]
    drawn = [plot for _, plot, _ in wanted if plot is not None]
    missing = [(name, why) for name, plot, why in wanted if plot is None]
    if len(parts) > MAX_PARTS:
        missing.append((f"{len(parts) - MAX_PARTS} more reward parts", f"one drawing holds {MAX_PARTS}"))
    return drawn, missing


def draw_evaluation(content: Content) -> str | None:
    """Bars of held-out success with their intervals."""
    evaluation = content.evaluation
    if evaluation is None:
        return None
    outcomes = [("before", evaluation.before)] + ([("after", evaluation.after)] if evaluation.after else [])
    return interval_bars(
        "Held-out success",
        [(label, one.rate, one.interval.low, one.interval.high) for label, one in outcomes],
        [one.greedy_successes / one.n if one.greedy_successes is not None else None for _, one in outcomes],
    )


def draw_probe(probe: Mapping[str, Any] | None) -> str | None:
    """How many prompts had how many successes."""
    at_run = (probe or {}).get("run") or {}
    successes, samples = at_run.get("successes_per_prompt"), at_run.get("samples_per_prompt")
    if not successes or not samples:
        return None
    counts = [sum(k == wanted for k in successes) for wanted in range(samples + 1)]
    return count_bars("Probe", counts, f"successes of {samples} completions")


def fit_words(fit: Mapping[str, Any] | None, log: Log) -> list[str]:
    """The prediction in sentences, beside what was measured."""
    if not fit:
        return []

    def size(key: str) -> str:
        return format_bytes(_number(fit.get(key)))

    def seconds(key: str) -> str:
        return format_seconds(_number(fit.get(key)))

    words = []
    if fit.get("peak_bytes") is not None:
        words.append(
            f"Predicted peak {size('peak_bytes')} ({size('peak_low_bytes')} to {size('peak_high_bytes')}) in phase "
            f"{fit.get('peak_phase')}, of a budget of {size('budget_bytes')}."
        )
    if fit.get("step_seconds") is not None:
        took = median_of(log.values("step_time"))
        words.append(
            f"Forecast {seconds('step_seconds')} a step ({seconds('step_seconds_low')} to "
            f"{seconds('step_seconds_high')}), mostly {fit.get('dominates')}; measured {format_seconds(took)} (median)."
        )
    return words


def fit_phases(fit: Mapping[str, Any] | None) -> list[tuple[str, float]]:
    """(phase, bytes) of a fit report, largest first."""
    phases = (fit or {}).get("phases")
    if not isinstance(phases, list):
        return []
    sizes = [(str(phase.get("phase")), _number(phase.get("bytes"))) for phase in phases if isinstance(phase, Mapping)]
    return sorted([(name, size) for name, size in sizes if size is not None], key=lambda phase: -phase[1])


def _plot(title: str, log: Log, keys: Sequence[str]) -> Plot | None:
    lines = [Line(metric_of(key).title, tuple(log.series(key)), index) for index, key in enumerate(keys, start=1)]
    if not lines:
        return None
    metric = metric_of(keys[0])
    return line_plot(title, lines, unit=metric.unit, note=metric.means, low=metric.low, high=metric.high)


def _groups_plot(log: Log) -> Plot | None:
    if not log.values(ZERO_SHARE):
        return _plot("Groups without signal", log, ["frac_reward_zero_std"])
    keys = (
        (ZERO_SHARE, "All alike"),
        (CEILING_SHARE, "All solved"),
        (FLOOR_SHARE, "All failed"),
        (PLATEAU_SHARE, "Alike between"),
    )
    lines = [Line(label, tuple(log.series(key)), index) for index, (key, label) in enumerate(keys, start=1)]
    shown = [line for line in lines if any(value > VISIBLE_SHARE for _, value in line.points)] or lines[:1]
    return line_plot("Groups without signal", shown, unit="share", note=metric_of(ZERO_SHARE).means, low=0.0, high=1.0)


def _lengths_plot(log: Log, cap: int | None) -> Plot | None:
    keys = ("completions/mean_length", "completions/max_length", "completions/min_length")
    lines = [Line(metric_of(key).title, tuple(log.series(key)), index) for index, key in enumerate(keys, start=1)]
    longest = max((value for line in lines for _, value in line.points), default=0.0)
    near = cap is not None and longest > 0.5 * cap
    note = "" if cap is None else f"The cap, max_completion_length, is {cap} tokens."
    limits = [(float(cap), f"cap {cap}")] if near and cap is not None else []
    return line_plot("Completion length", lines, unit="tokens", note=note, low=0.0, limits=limits)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
