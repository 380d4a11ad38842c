"""The fit report as text a person reads at 80 columns: one bar a phase, the peak marked, then what to change and how long.

In: a `FitReport`, a width. Out: text. ASCII marks only, so that it survives any terminal.
"""

from __future__ import annotations

import textwrap

from spark_rl.fit.forecast import BAND_HIGH, BAND_LOW
from spark_rl.fit.lines import Line, Phase
from spark_rl.fit.report import FitReport
from spark_rl.units import format_count, format_gib, format_seconds

_WORDS = {"fits": "FITS", "tight": "TIGHT", "does_not_fit": "DOES NOT FIT"}


def report_text(report: FitReport, width: int = 80, explain: bool = False) -> str:
    """The report, no line longer than `width` (60 at the least)."""
    width = max(60, width)
    blocks = [
        _head(report, width),
        _phase_table(report, width),
        _peak_lines(report, width),
        *([_explained(report, width)] if explain else []),
        _host_line(report, width),
        _engine_line(report, width),
        _time_lines(report, width),
        _remedy_lines(report, width),
        _note_lines(report, width),
    ]
    return "\n\n".join(block for block in blocks if block)


def _wrapped(text: str, width: int, indent: str = "  ") -> str:
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _head(report: FitReport, width: int) -> str:
    work, card = report.work, report.work.card
    method = {"full": "full fine-tuning", "lora": f"LoRA r{work.lora_rank}", "qlora": f"QLoRA r{work.lora_rank}"}
    lines = [
        f"{_WORDS[report.verdict]}: {report.recipe_name} on {report.machine.name}",
        f"{card.name} ({format_count(card.parameter_count)}), {method.get(work.tuning, work.tuning)}, "
        f"{work.rows} x {work.tokens_per_row} tokens a forward",
        f"peak {format_gib(report.peak_bytes)} GiB (up to {format_gib(report.high_bytes)}) in {report.peak.name}; "
        f"budget {format_gib(report.budget.device_bytes)} GiB; headroom {format_gib(report.headroom_bytes)} GiB",
        f"budget: {report.budget.sentence}",
    ]
    return "\n".join(_wrapped(line, width) for line in lines)


def _phase_table(report: FitReport, width: int) -> str:
    scale = max(report.budget.device_bytes, report.peak_bytes)
    room = width - 18 - 9 - 9
    mark = min(room - 1, int(room * report.budget.device_bytes / scale)) if scale else 0
    rows = []
    for phase in report.phases:
        need = report.budget.need(phase)
        filled = min(room, round(room * need / scale)) if scale else 0
        bar = list("#" * filled + "." * (room - filled))
        bar[mark] = "|"
        tail = "  <- peak" if phase is report.peak else ""
        rows.append(f"{phase.name:<17} {format_gib(need):>8} {''.join(bar)}{tail}".rstrip())
    rows.append(f"{'':<17} {'GiB':>8} {' ' * mark}| budget")
    return "\n".join(row[:width].rstrip() for row in rows)


def _line_text(line: Line, width: int, explain: bool) -> str:
    where = " (host)" if line.pool == "host" else ""
    head = f"  {format_gib(line.num_bytes):>8}  {line.name}{where}"
    if not explain:
        return head[:width]
    detail = line.formula + (f"; {line.note}" if line.note else "")
    wrapped = textwrap.wrap(f"{head} = {detail}", width, subsequent_indent=" " * 12, break_long_words=False)
    return "\n".join(wrapped)


def _peak_lines(report: FitReport, width: int) -> str:
    note = f", {report.peak.note}" if report.peak.note else ""
    lines = sorted(report.peak.lines, key=lambda line: -line.num_bytes)
    counted = [line for line in lines if line.pool == "device" or report.budget.one_pool]
    body = [_line_text(line, width, False) for line in counted if line.num_bytes >= 0.005 * 2**30]
    return "\n".join([f"in {report.peak.name}{note} (GiB):", *body])


def _explained(report: FitReport, width: int) -> str:
    blocks = []
    for phase in report.phases:
        body = [_line_text(line, width, True) for line in phase.lines]
        blocks.append("\n".join([f"{phase.name} = {format_gib(report.budget.need(phase))} GiB{_noted(phase)}", *body]))
    return "\n".join(blocks)


def _noted(phase: Phase) -> str:
    return f" ({phase.note})" if phase.note else ""


def _host_line(report: FitReport, width: int) -> str:
    if report.budget.host_bytes is None:
        return ""
    short = " (DOES NOT FIT)" if report.host_peak_bytes > report.budget.host_bytes else ""
    return _wrapped(
        f"host memory{short}: {format_gib(report.host_peak_bytes)} of {format_gib(report.budget.host_bytes)} GiB at its own peak",
        width,
    )


def _engine_line(report: FitReport, width: int) -> str:
    if report.engine_problem:
        return _wrapped(f"engine: {report.engine_problem}", width)
    if report.engine is None or report.concurrency is None:
        return ""
    wanted, most = report.work.rollout_sequences, report.work.engine.max_num_seqs
    room = f"room for {report.concurrency:.1f} full-length requests"
    at_once = min(report.concurrency, most or wanted)
    turns = "" if at_once >= wanted else f"; {at_once:.0f} of {wanted} completions run at once, the others follow"
    return _wrapped(f"engine: {report.engine.sentence()}; {room}{turns}", width)


def _time_lines(report: FitReport, width: int) -> str:
    times = report.forecast
    low, high = times.step_seconds * BAND_LOW, times.step_seconds * BAND_HIGH
    parts = ", ".join(f"{name} {format_seconds(value)}" for name, value in times.parts.items() if value >= 0.05)
    lines = [
        f"time: about {format_seconds(times.step_seconds)} a step ({format_seconds(low)} to {format_seconds(high)}), "
        f"{format_seconds(times.run_hours * 3600)} for {times.max_steps} steps; {times.dominates} dominates",
        f"  {parts}; {times.decode_tokens_per_second:,.0f} tokens/s while decoding",
    ]
    return "\n".join(_wrapped(line, width, "    ") for line in lines)


def _remedy_lines(report: FitReport, width: int) -> str:
    if report.verdict != "does_not_fit":
        return ""
    if not report.remedies:
        return "nothing on the ladder makes it fit: choose a smaller model or a larger machine"
    lines = ["what would make it fit, cheapest first:"]
    for remedy in report.remedies:
        sets = " ".join(f"--set {setting}" for setting in remedy.settings)
        words = f"  {sets}: peak {format_gib(remedy.peak_bytes)} GiB, {format_seconds(remedy.step_seconds)} a step"
        words += " (tight)" if remedy.verdict == "tight" else ""
        lines.append(_wrapped(f"{words}; {remedy.cost}", width, "      "))
    return "\n".join(lines)


def _note_lines(report: FitReport, width: int) -> str:
    return "\n".join(_wrapped(f"note: {note}", width) for note in report.notes)
