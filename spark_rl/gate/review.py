"""Reading samples one at a time in a plain terminal: what is on the screen, and what each key does.

In: an inspection, the reader's name, a `Terminal` and a function that saves an opinion. Out: saved opinions, each on
disk before the next screen. The screen is a list of lines; nothing here prints.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from spark_rl.gate.alarms import find_alarms
from spark_rl.gate.display import block, one_line, printable, sentence_lines, wrap
from spark_rl.gate.inspection import Inspection, withdrawal_problem
from spark_rl.gate.opinions import Opinion, Says, reader_kind
from spark_rl.gate.samples import Sample, count_of, review_order
from spark_rl.gate.status import counts_text

MIN_WIDTH, MIN_HEIGHT = 40, 12
MAX_NOTE_LINES = 3
"""Of a note or message at the foot; the rest of the screen belongs to the sample."""
LONG_TEXT = 30
"""Characters from which a column's text that occurs in the prompt is there because it was put there."""
VERDICT_KEYS: dict[str, Says] = {"a": "agree", "d": "disagree", "u": "unsure"}
FOOTER = "a agree  d disagree  u unsure  n note  b back  f forward  ? help  q leave"

HELP = (
    "You are asked one thing: would you have scored this completion as the reward did?",
    "",
    "a  agree: the score is what you would give",
    "d  disagree: it is not (say why; the reward is then mended and these samples scored again)",
    "u  unsure: you cannot tell; counted, at most half may be",
    "n  a note on this sample",
    "b  back to the sample before          f  forward without a verdict",
    "space, arrows, PgUp, PgDn  move in a long text",
    "?  this page                          q  leave; everything is saved, come back any time",
    "",
    "Lines of the model's text begin with '|' (':' when a line goes on). Characters that would move the cursor or hide "
    "are written as escapes such as \\x1b.",
    "Samples come highest and lowest scores first, then the middle in random order.",
)


class Terminal(Protocol):
    """Where the review is shown. Keys are single characters, or the names below."""

    @property
    def encoding(self) -> str: ...
    def size(self) -> tuple[int, int]:
        """(columns, rows) that may be drawn on"""
        ...

    def draw(self, lines: Sequence[str]) -> None: ...
    def key(self) -> str:
        """The next key; "up", "down", "pageup", "pagedown", "left", "right"; "" when the terminal has gone."""
        ...

    def line(self, question: str) -> str | None:
        """A typed line; None when it was given up."""
        ...


Page = Literal["start", "sample", "help", "end"]


@dataclass(frozen=True)
class View:
    """What is on the screen."""

    page: Page
    position: int = 0
    """Which sample, in review order."""
    scroll: int = 0
    message: str = ""
    """One line about the last key."""


@dataclass(frozen=True)
class Session:
    """What does not change while reading."""

    inspection: Inspection
    order: tuple[Sample, ...]
    alarms: tuple[str, ...]
    reader: str


def review(inspection: Inspection, reader: str, terminal: Terminal, save: Callable[[Opinion], None]) -> dict[str, int]:
    """Show samples until the reader leaves. Returns how many samples got each verdict now."""
    kind = reader_kind(reader)
    seed = inspection.drawn.seed if inspection.drawn else 0
    order = tuple(review_order(inspection.samples, seed))
    session = Session(inspection, order, tuple(find_alarms(inspection.samples)), reader)
    opinions = dict(inspection.opinions)
    saved: dict[str, Says] = {}

    def keep(sample: Sample, says: Says, note: str) -> str:
        opinion = Opinion(sample.id, says, sample.digest(), reader, kind, note)
        problem = withdrawal_problem(opinions.get(sample.id), sample, opinion)
        if problem:
            return problem
        save(opinion)
        opinions[sample.id] = opinion
        saved[sample.id] = says
        return ""

    view = View("start", first_open(order, opinions) or 0)
    while True:
        width, height = terminal.size()
        terminal.draw(screen(session, view, opinions, width, height, terminal.encoding))
        key = terminal.key()
        view = replace(view, message="")
        if key in ("q", ""):
            return dict(Counter(saved.values()))
        if too_small(width, height):
            continue  # nobody judges what is not shown
        if view.page in ("start", "help"):
            view = View("sample" if order else "end", view.position)
        elif key == "?":
            view = replace(view, page="help")
        elif view.page == "end":
            view = View("sample", len(order) - 1) if key == "b" else view
        elif key in VERDICT_KEYS:
            view = _judge(view, order, opinions, VERDICT_KEYS[key], keep, terminal)
        elif key == "n":
            view = _annotate(view, order[view.position], opinions, keep, terminal)
        else:
            view = moved(view, key, len(order), _page_rows(session, view, opinions, (width, height), terminal.encoding))


def _judge(
    view: View,
    order: Sequence[Sample],
    opinions: dict[str, Opinion],
    says: Says,
    keep: Callable[[Sample, Says, str], str],
    terminal: Terminal,
) -> View:
    """Save a verdict; a disagreement is asked for its reason, after it is saved."""
    sample = order[view.position]
    before = opinions.get(sample.id)
    note = before.note if before else ""
    if before and before.says == "disagree" and says != "disagree":
        note = (terminal.line("you disagreed with this score; why do you take it back? ") or "").strip()
    problem = keep(sample, says, note)
    if problem:
        return replace(view, message=problem)
    if says == "disagree" and not note:
        reason = (terminal.line("what should it have scored, and why? (Enter: no note) ") or "").strip()
        if reason:
            keep(sample, says, reason)
    following = first_open(order, opinions, view.position + 1)
    return View("end") if following is None else View("sample", following)


def _annotate(
    view: View,
    sample: Sample,
    opinions: dict[str, Opinion],
    keep: Callable[[Sample, Says, str], str],
    terminal: Terminal,
) -> View:
    opinion = opinions.get(sample.id)
    if opinion is None:
        return replace(view, message="first a, d or u, then a note")
    note = terminal.line("note: ")
    if note is None or not note.strip():
        return replace(view, message="the note stays as it was")
    keep(sample, opinion.says, note.strip())
    return replace(view, message="noted")


def first_open(order: Sequence[Sample], opinions: dict[str, Opinion], start: int = 0) -> int | None:
    """The next sample without a verdict, from `start` on and around; None when every one has one."""
    still_open = [position for position, sample in enumerate(order) if sample.id not in opinions]
    later = [position for position in still_open if position >= start]
    return next(iter(later or still_open), None)


def moved(view: View, key: str, num_samples: int, rows: tuple[int, int]) -> View:
    """The view after a key that moves; `rows` are (rows of the text, rows that fit)."""
    total, fit = rows
    last = max(0, total - fit)
    step = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -fit, " ": fit, "pagedown": fit}.get(key)
    if step is not None:
        return replace(view, scroll=min(last, max(0, view.scroll + step)))
    if key in ("b", "left"):
        return View("sample", max(0, view.position - 1))
    if key in ("f", "right", "\n", "\r"):
        return View("sample", view.position + 1) if view.position + 1 < num_samples else View("end")
    return replace(view, message=f"{printable(key)} does nothing; ? for help")


def _page_rows(
    session: Session, view: View, opinions: dict[str, Opinion], size: tuple[int, int], encoding: str
) -> tuple[int, int]:
    """(rows of the sample's text, rows of it that fit on the screen)"""
    sample = session.order[view.position]
    head, text, foot = sample_page(session, view, sample, opinions.get(sample.id), size[0], encoding)
    return len(text), max(1, size[1] - len(head) - len(foot))


def too_small(width: int, height: int) -> bool:
    return width < MIN_WIDTH or height < MIN_HEIGHT


def screen(
    session: Session, view: View, opinions: dict[str, Opinion], width: int, height: int, encoding: str
) -> list[str]:
    """The lines of the screen: never more than `height`, none wider than `width`."""
    if too_small(width, height):
        return [f"Needs {MIN_WIDTH}x{MIN_HEIGHT},"[:width], f"have {width}x{height}; q leaves"[:width]][:height]
    if view.page == "help":
        lines = [
            piece
            for text in (*(f"! {printable(alarm, encoding)}" for alarm in session.alarms), *HELP)
            for piece in _ours(text, width)
        ]
        return [*lines[: height - 1], "any key goes back"]
    if view.page != "sample":
        return _summary(session, view, opinions, width, encoding)[:height]
    sample = session.order[view.position]
    head, text, foot = sample_page(session, view, sample, opinions.get(sample.id), width, encoding)
    fit = max(1, height - len(head) - len(foot))
    start = min(view.scroll, max(0, len(text) - fit))
    shown = text[start : start + fit]
    if len(text) > fit:
        more = f" lines {start + 1}-{start + len(shown)} of {len(text)}; space shows more "
        foot[0] = more.center(width, "-")
    return [*head, *shown, *foot]


def _summary(session: Session, view: View, opinions: dict[str, Opinion], width: int, encoding: str) -> list[str]:
    """The first and the last page: how far the reading is, and the facts to keep in mind."""
    said = [opinion.says for opinion in opinions.values()]
    counts = {**session.inspection.counts(), **{word: said.count(word) for word in ("agree", "disagree", "unsure")}}
    counts["unread"] = counts["samples"] - len(said)
    lines = [
        one_line(f"inspection of {session.inspection.run.name}", width, encoding),
        *sentence_lines(counts_text(counts), width),
    ]
    for alarm in session.alarms:
        lines += sentence_lines(f"! {printable(alarm, encoding)}", width)
    lines.append("")
    path = session.inspection.run.path
    if view.page == "start":
        lines += sentence_lines(f"You read as {printable(session.reader, encoding)}. {HELP[0]}", width, "")
        return [*lines, "any key begins, q leaves"]
    if counts["unread"]:
        lines.append(f"{counts['unread']} of {counts['samples']} samples have no verdict yet.")
    elif counts["disagree"]:
        lines += sentence_lines(f"Every sample is read. Mend the reward, then: spark-rl inspect rescore {path}", width)
    else:
        lines += sentence_lines(f"Every sample is read. To sign: spark-rl inspect sign {path}", width)
    return [*lines, "b back, ? help, q leave"]


def sample_page(
    session: Session, view: View, sample: Sample, opinion: Opinion | None, width: int, encoding: str
) -> tuple[list[str], list[str], list[str]]:
    """(head, scrollable text, foot) of one sample. Our own words stand at the margin, the model's behind a bar."""
    place = f"sample {view.position + 1} of {len(session.order)}"
    marks = f"{count_of(len(session.alarms), 'alarm')} (?)  " if session.alarms else ""
    name = one_line(session.inspection.run.name, max(8, width - len(place) - len(marks) - 2), encoding)
    head = [f"{name}  {marks}{place}"[:width], "-" * width]
    known = {True: "yes", False: "no", None: "N/A"}[sample.correct]
    cut = "  CUT OFF at the length limit" if sample.truncated else ""
    score = f"{printable(sample.id, encoding)}  total {number_text(sample.total)}  correct {known}  {sample.num_tokens} tokens{cut}"
    text = wrap(score, width)
    for part, verdict in sample.parts.items():
        value = "FAILED" if verdict.is_bug else number_text(verdict.value)
        line = f"  {part}: {value}  {verdict.reason}"
        text += [
            f": {piece}" if index else piece for index, piece in enumerate(wrap(printable(line, encoding), width - 2))
        ]
    text += ["prompt", *block(sample.prompt, width, encoding), "completion", *block(sample.completion, width, encoding)]
    columns = data_beside(sample)
    text += ["data"] if columns else []
    for name, value in columns.items():
        text += block(f"{name}: {value}", width, encoding)
    mine = "no verdict yet"
    if opinion:
        mine = f"{opinion.says} ({opinion.reader})" + (f": {opinion.note}" if opinion.note else "")
    foot = [
        "-" * width,
        *sentence_lines(printable(view.message or mine, encoding), width)[:MAX_NOTE_LINES],
        *_ours(FOOTER, width),
    ]
    return head, text, foot


def data_beside(sample: Sample) -> dict[str, str]:
    """The columns of the row, as text, that the prompt does not show anyway. A short answer may occur in any prompt."""
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for name, value in sample.row.items()
    }
    return {
        name: text
        for name, text in texts.items()
        if text.strip() != sample.prompt.strip() and not (len(text) >= LONG_TEXT and text in sample.prompt)
    }


def _ours(text: str, width: int) -> list[str]:
    """Our own line as it is where it fits, else broken between words."""
    return [text] if len(text) <= width else sentence_lines(text, width)


def number_text(value: float | None) -> str:
    return "N/A" if value is None else f"{value:.4g}"
