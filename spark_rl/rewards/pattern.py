"""The regex reward: a Python regular expression on the completion.

In:  a completion, and a column with accepted answers when a group must equal one. Out: 1.0 or 0.0 and what matched.
Patterns whose time can explode on hostile text (a repetition inside a repetition, or three in a row) are matched in a
process that is killed at the limit; all others are matched here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from spark_rl.rewards import regex_worker
from spark_rl.rewards.base import Reward, RewardOptions, Row, Verdict, column, shorten
from spark_rl.rewards.matching import accepted_answers, normalised
from spark_rl.rewards.regex_worker import found_text
from spark_rl.rewards.workers import KillablePool

MAX_COMPLETION = 1_000_000
"""Characters; the end of a longer completion is judged."""


class RegexOptions(RewardOptions):
    pattern: str
    """Python regular expression; `.` matches newlines too."""
    match: Literal["search", "fullmatch"] = "search"
    answer: str | None = None
    """Column that group 1 (or the group named "answer") must equal after normalisation; None: a match is enough."""
    ignore_case: bool = False
    last: bool = True
    """With "search": the last match decides, so that listing every answer does not help."""
    time_limit_s: float = 1.0
    """CPU seconds for one completion, for patterns that may need them."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern


class RegexMatch(Reward[RegexOptions]):
    """1.0 when the pattern matches (and its group equals the gold, when a column is named)."""

    kind = "regex"
    options_type = RegexOptions

    def __init__(self, name: str | None = None, base_dir: Path | None = None, **options: Any) -> None:
        super().__init__(name, base_dir, **options)
        self.setup = self.options.model_dump(include={"pattern", "match", "ignore_case", "last"})
        self.pool: KillablePool | None = None
        if may_explode(self.options.pattern):
            self.pool = KillablePool(regex_worker, self.options.time_limit_s, self.setup, max_workers=1)

    def judge(self, completion: str, row: Row) -> Verdict:
        return self.judge_batch([completion], [row])[0]

    def judge_batch(self, completions: Sequence[str], rows: Sequence[Row]) -> list[Verdict]:
        texts = [completion[-MAX_COMPLETION:] for completion in completions]
        if self.pool is None:
            return [self._verdict(found_text(text, self.setup), row) for text, row in zip(texts, rows, strict=True)]
        slow = Verdict(0.0, f"the pattern did not match within {self.options.time_limit_s:g} s")
        return [
            slow if outcome.fault else self._verdict(outcome.value, row)
            for outcome, row in zip(self.pool.run(texts), rows, strict=True)
        ]

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()

    def _verdict(self, said: str | None, row: Row) -> Verdict:
        golds = accepted_answers(column(row, self.options.answer)) if self.options.answer is not None else None
        if golds is not None and not golds:
            return Verdict(None, f"column {self.options.answer!r} is empty in this row")
        if said is None:
            return Verdict(0.0, "the pattern does not match")
        if golds is None:
            return Verdict(1.0, "the pattern matches")
        if any(normalised(said) == normalised(gold) for gold in golds):
            return Verdict(1.0, f"matched {shorten(said, 40)!r}, as accepted")
        return Verdict(0.0, f"matched {shorten(said, 40)!r}, which is none of the accepted answers")


def may_explode(pattern: str) -> bool:
    """Whether matching can take more than about quadratic time: nested repetitions, or more than two in one pattern."""
    from re import _parser  # type: ignore[attr-defined]

    depth, count = _repetitions(_parser.parse(pattern))
    return depth > 1 or count > 2


def _repetitions(parsed: Any) -> tuple[int, int]:
    """How deep unbounded repetitions are nested, and how many there are."""
    deepest = total = 0
    for operation, argument in parsed:
        inner_depth = inner_total = 0
        for part in _inner(argument):
            depth, count = _repetitions(part)
            inner_depth, inner_total = max(inner_depth, depth), inner_total + count
        if str(operation) in ("MAX_REPEAT", "MIN_REPEAT") and argument[1] > 30:
            inner_depth, inner_total = inner_depth + 1, inner_total + 1
        deepest, total = max(deepest, inner_depth), total + inner_total
    return deepest, total


def _inner(argument: Any) -> list[Any]:
    """The subpatterns inside one parsed element."""
    from re import _parser  # type: ignore[attr-defined]

    if isinstance(argument, _parser.SubPattern):
        return [argument]
    if isinstance(argument, tuple | list):
        return [inner for item in argument for inner in _inner(item)]
    return []
