"""Whether a completion has the asked-for shape: tags or sections, in order, once each, with nothing outside.

In: the completion. Out: 1.0 or 0.0 (or a share with `partial`) and the first rule that is broken.
Bodies may have many lines; spaces and newlines around tags never matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import field_validator, model_validator

from spark_rl.rewards.base import Reward, RewardOptions, Row, Verdict, shorten


class FormatOptions(RewardOptions):
    tags: tuple[str, ...] = ()
    """Tag names in order: ["think", "answer"] asks for <think>...</think> then <answer>...</answer>."""
    sections: tuple[str, ...] = ()
    """Line starts in order, such as ["Reasoning:", "Answer:"]; each must have text after it."""
    opened: bool = False
    """The prompt already holds the first opening tag (a prefilled start), so the completion begins inside it."""
    nothing_outside: bool = True
    """Text outside tags, or before the first section, breaks the format."""
    allow_empty: bool = False
    """A tag or section without text holds."""
    partial: bool = False
    """Give the share of tags or sections that hold instead of all or nothing (never 1.0 unless all rules hold)."""

    @field_validator("tags")
    @classmethod
    def _bare_names(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        bare = tuple(tag.strip("<>/ ") for tag in tags)
        if any(not re.fullmatch(r"[\w.-]+", tag) for tag in bare):
            raise ValueError(f"tag names are words, not {list(tags)}")
        return bare

    @model_validator(mode="after")
    def _one_of_both(self) -> FormatOptions:
        if bool(self.tags) == bool(self.sections):
            raise ValueError("give either tags or sections")
        if self.opened and not self.tags:
            raise ValueError("opened needs tags")
        return self


class Format(Reward[FormatOptions]):
    """1.0 when every rule of the format holds."""

    kind = "format"
    options_type = FormatOptions

    def judge(self, completion: str, row: Row) -> Verdict:
        options = self.options
        text = f"<{options.tags[0]}>{completion}" if options.opened else completion
        if options.tags:
            held, fault = _tags_held(text, options.tags, options.nothing_outside, options.allow_empty)
            total = len(options.tags)
        else:
            held, fault = _sections_held(text, options.sections, options.nothing_outside, options.allow_empty)
            total = len(options.sections)
        if fault is None:
            return Verdict(1.0, "the format holds")
        return Verdict(0.9 * held / total if options.partial else 0.0, fault)


def _tags_held(text: str, tags: Sequence[str], nothing_outside: bool, allow_empty: bool) -> tuple[int, str | None]:
    """How many tags hold, and the first fault."""
    faults: list[str] = []
    held = 0
    position = 0
    outside = ""
    for tag in tags:
        fault = _tag_fault(text, tag, allow_empty)
        start, end = text.find(f"<{tag}>"), text.find(f"</{tag}>")
        if fault is None and start < position:
            fault = f"<{tag}> is out of order"
        if fault is None:
            outside += text[position:start]
            position = end + len(tag) + 3
            held += 1
        else:
            faults.append(fault)
    outside += text[position:]
    if not faults and nothing_outside and outside.strip():
        faults.append(f"text outside the tags: {shorten(outside, 40)!r}")
    return held, faults[0] if faults else None


def _tag_fault(text: str, tag: str, allow_empty: bool) -> str | None:
    opening, closing = f"<{tag}>", f"</{tag}>"
    counts = text.count(opening), text.count(closing)
    if counts != (1, 1):
        return f"{opening} occurs {counts[0]} times and {closing} {counts[1]} times, expected once each"
    start, end = text.index(opening) + len(opening), text.index(closing)
    if end < start:
        return f"{closing} comes before {opening}"
    if not allow_empty and not text[start:end].strip():
        return f"{opening} is empty"
    return None


def _sections_held(
    text: str, sections: Sequence[str], nothing_outside: bool, allow_empty: bool
) -> tuple[int, str | None]:
    """How many sections hold, and the first fault."""
    starts: list[tuple[int, int]] = []
    faults: list[str] = []
    for section in sections:
        found = [match.span() for match in re.finditer(rf"^[ \t]*{re.escape(section)}", text, re.MULTILINE)]
        if len(found) != 1:
            faults.append(f"section {section!r} occurs {len(found)} times, expected once")
        elif starts and found[0][0] < starts[-1][0]:
            faults.append(f"section {section!r} is out of order")
        else:
            starts.append(found[0])
    ends = [start for start, _ in starts[1:]] + [len(text)]
    bodies = [text[body_start:end].strip() for (_, body_start), end in zip(starts, ends, strict=False)]
    held = sum(1 for body in bodies if body or allow_empty)
    if held < len(bodies):
        faults.append("a section is empty")
    if not faults and nothing_outside and text[: starts[0][0]].strip():
        faults.append(f"text before the first section: {shorten(text[: starts[0][0]], 40)!r}")
    return held, faults[0] if faults else None
