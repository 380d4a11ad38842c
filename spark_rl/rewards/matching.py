"""Exact match against one or several accepted answers.

In: a completion, and a row with the accepted answers. Out: 1.0 or 0.0 and which answer decided.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, Literal

from spark_rl.rewards.base import Reward, RewardOptions, Row, Verdict, column, shorten
from spark_rl.rewards.extract import WHY_NONE, find_answer

Normalisation = Literal["text", "strict"]


class ExactOptions(RewardOptions):
    answer: str = "answer"
    """Column with the accepted answer, or a list of accepted answers."""
    where: Literal["final_answer", "whole"] = "final_answer"
    """Compare the stated final answer (boxed, <answer>, ####, "the answer is"; else the whole text), or the whole text."""
    normalise: Normalisation = "text"
    """"text": case, width, quotes, spaces and a final stop do not matter. "strict": only outer spaces are cut."""


def normalised(text: str, how: Normalisation = "text") -> str:
    """Text in the form in which two answers are compared."""
    if how == "strict":
        return text.strip()
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = " ".join(folded.split())
    stripped = words.strip(" .,;:!\"'`*_’‘“”")
    return stripped or words


def accepted_answers(gold: Any) -> list[str]:
    """The gold column as a list of texts; None and an empty list give an empty list."""
    if gold is None:
        return []
    if isinstance(gold, str) or not isinstance(gold, Sequence):
        return [str(gold)]
    return [str(one) for one in gold if one is not None]


class ExactMatch(Reward[ExactOptions]):
    """1.0 when the normalised answer equals any accepted answer."""

    kind = "exact"
    options_type = ExactOptions

    def judge(self, completion: str, row: Row) -> Verdict:
        golds = accepted_answers(column(row, self.options.answer))
        if not golds:
            return Verdict(None, f"column {self.options.answer!r} is empty in this row")
        said = completion
        if self.options.where == "final_answer":
            stated = find_answer(completion)
            if stated.rule in WHY_NONE and not any(normalised(gold) == normalised(completion) for gold in golds):
                return Verdict(0.0, WHY_NONE[stated.rule])
            said = stated.text
        found = normalised(said, self.options.normalise)
        if found and any(found == normalised(gold, self.options.normalise) for gold in golds):
            return Verdict(1.0, f"equals the accepted answer {shorten(said, 40)!r}")
        return Verdict(0.0, f"{shorten(said, 40)!r} is none of the accepted answers")
