"""Series -> SVG drawings that follow the page's colours, light or dark, and carry their own axis.

In: series with labels and the metric catalogue's bounds. Out: SVG text without scripts, ids that clash, or addresses.
Legends are the page's business: a label never passes through a drawing.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from spark_rl.stats import mean
from spark_rl.units import format_share

INK, GRID = "#0a0b0c", "#0d0e0f"
LINE_COLOURS = ("#0a0101", "#0a0102", "#0a0103", "#0a0104", "#0a0105", "#0a0106")
"""Stand-ins that are replaced by the page's CSS variables; chosen so that nothing else has them."""

CSS_OF = {
    INK: "var(--muted)",
    GRID: "var(--line)",
    **{stand_in: f"var(--c{i})" for i, stand_in in enumerate(LINE_COLOURS, 1)},
}

DASHES: tuple[str, ...] = ("solid", "dashed", "dotted", "dashdot", (0, (8, 2)), (0, (1, 1)))  # type: ignore[assignment]
"""A second carrier beside colour."""

MAX_SMOOTHED = 25
"""Rows in the running mean that is drawn over the raw values, at most."""

RC = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.parse_math": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
}


@dataclass(frozen=True)
class Line:
    """One series of a drawing; gaps are steps without a value."""

    label: str
    points: tuple[tuple[int, float], ...]
    colour: int = 1
    """1 to 6: the page's series colours."""

    @property
    def dash(self) -> int:
        return self.colour - 1


@dataclass(frozen=True)
class Plot:
    """A drawing with what the page needs around it."""

    title: str
    svg: str
    lines: tuple[Line, ...]
    unit: str = ""
    note: str = ""
    """What the number means, one sentence."""
    last: tuple[tuple[str, str], ...] = field(default=())
    """(label, "first -> last" in words) per line."""


def line_plot(
    title: str,
    lines: Sequence[Line],
    *,
    unit: str = "",
    note: str = "",
    low: float | None = None,
    high: float | None = None,
    limits: Sequence[tuple[float, str]] = (),
) -> Plot | None:
    """Lines over steps; None when no line has a point. `limits` are labelled horizontal lines."""
    drawn = [line for line in lines if line.points]
    if not drawn:
        return None
    with rc_context(RC):
        figure = Figure(figsize=(5.6, 2.4), layout="constrained")
        axes = figure.subplots()
        for line in drawn:
            _draw_line(axes, line, with_raw=len(drawn) <= 2)
        for value, words in limits:
            axes.axhline(value, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
            axes.annotate(
                words, (1, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=INK, fontsize=8
            )
        _set_range(axes, drawn, low, high, [value for value, _ in limits])
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        if unit == "share":
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_share(value, 0)))
        elif unit:
            axes.set_ylabel(unit)
        axes.grid(True, axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        svg = _svg(figure, title)
    return Plot(title, svg, tuple(drawn), unit, note, tuple((line.label, _ends(line, unit)) for line in drawn))


def interval_bars(title: str, bars: Sequence[tuple[str, float, float, float]], greedy: Sequence[float | None]) -> str:
    """Shares with their intervals, (label, share, low, high); a diamond where greedy decoding lies, if known."""
    with rc_context(RC):
        figure = Figure(figsize=(5.6, 0.55 + 0.5 * len(bars)), layout="constrained")
        axes = figure.subplots()
        for index, (_, share, low, high) in enumerate(bars):
            colour = LINE_COLOURS[0 if index else 1]
            axes.barh(index, share, height=0.55, color=colour, alpha=0.45)
            axes.plot([low, high], [index, index], color=colour, linewidth=2.2)
            for end in (low, high):
                axes.plot([end, end], [index - 0.14, index + 0.14], color=colour, linewidth=2.2)
            point = greedy[index]
            if point is not None:
                axes.plot(
                    [point],
                    [index],
                    marker="D",
                    markersize=6,
                    color=INK,
                    markerfacecolor="none",
                    linestyle="",
                    clip_on=False,
                )
        axes.set_yticks(range(len(bars)), [label for label, *_ in bars])
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_share(value, 0)))
        axes.grid(True, axis="x", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        return _svg(figure, title)


def count_bars(title: str, counts: Sequence[int], xlabel: str) -> str:
    """How many prompts had 0, 1, 2, ... successes."""
    with rc_context(RC):
        figure = Figure(figsize=(5.6, 1.9), layout="constrained")
        axes = figure.subplots()
        axes.bar(range(len(counts)), counts, color=LINE_COLOURS[0], alpha=0.6, width=0.8)
        axes.set_xlabel(xlabel)
        axes.set_ylabel("prompts")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
        axes.grid(True, axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        return _svg(figure, title)


def smoothed(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Running mean over up to a tenth of the rows, centred; the ends use what there is."""
    half = min(MAX_SMOOTHED, len(points) // 10) // 2
    if half < 1:
        return list(points)
    values = [value for _, value in points]
    return [(step, mean(values[max(0, i - half) : i + half + 1])) for i, (step, _) in enumerate(points)]


def _draw_line(axes: Axes, line: Line, with_raw: bool) -> None:
    colour, steps = LINE_COLOURS[line.colour - 1], [step for step, _ in line.points]
    smooth = [value for _, value in smoothed(line.points)]
    if with_raw and len(steps) >= 20:
        axes.plot(steps, [value for _, value in line.points], color=colour, linewidth=0.7, alpha=0.35)
    marker = "o" if len(steps) <= 12 else None
    axes.plot(steps, smooth, color=colour, linewidth=1.7, linestyle=DASHES[line.dash], marker=marker, markersize=3)


def _set_range(
    axes: Axes, lines: Sequence[Line], low: float | None, high: float | None, limits: Sequence[float]
) -> None:
    values = [value for line in lines for _, value in line.points] + list(limits)
    bottom = low if low is not None else min(values)
    top = high if high is not None else max(values)
    if top <= bottom:
        bottom, top = bottom - 0.5, bottom + 0.5
    room = 0.04 * (top - bottom)
    axes.set_ylim(bottom - room, top + room)


def _ends(line: Line, unit: str) -> str:
    """The line's first and last tenth, as means, in words."""
    values = [value for _, value in line.points]
    tenth = max(1, len(values) // 10)
    first, last = mean(values[:tenth]), mean(values[-tenth:])
    shown = [format_share(value, 0) if unit == "share" else f"{value:.3g}" for value in (first, last)]
    return shown[1] if len(values) == 1 else f"{shown[0]} → {shown[1]}"


def _svg(figure: Figure, title: str) -> str:
    """The figure as inline SVG: no prologue, metadata or namespaces (HTML needs none), colours from the page."""
    buffer = io.StringIO()
    salt = hashlib.sha256(title.encode()).hexdigest()[:8]
    with rc_context({"svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    # Groups carry ids like "axes_1" in every drawing; only the hashed ones are referred to.
    text = re.sub(r'(<g) id="[^"#]*"', r"\1", text)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r'\1 role="img" aria-hidden="true"', text, count=1)
    for stand_in, css in CSS_OF.items():
        text = text.replace(stand_in, css)
    return text
