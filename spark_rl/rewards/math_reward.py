"""The math reward: is the stated final answer the gold answer?

In:  a completion, and a row with the gold (a plain answer, LaTeX, or a GSM8K solution ending in "#### 42").
Out: 1.0 or 0.0 with what was read; None when the row has no gold. Plain numbers are judged here, by exact arithmetic;
everything else is asked of algebra in a process that is killed at the limit (then the answer counts as wrong, and says so).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from spark_rl.rewards import math_symbolic
from spark_rl.rewards.answers import Comparison, Pair, Rules
from spark_rl.rewards.base import (
    Reward,
    RewardOptions,
    Row,
    Verdict,
    column,
    completion_text,
    exception_verdict,
    shorten,
)
from spark_rl.rewards.extract import WHY_NONE, FoundAnswer, boxes, find_answer, is_negated, last_sentence
from spark_rl.rewards.matching import accepted_answers
from spark_rl.rewards.quantity import parse_quantity, tidy
from spark_rl.rewards.workers import KillablePool

MAX_COMPLETION = 200_000
"""Characters; the end of a longer completion is judged."""
_NUMBER_LIKE = re.compile(r"(?<![\w.])[-+]?[$€£]?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?")
_ENDS_IN_EQUATION = re.compile(r"=\s*([^=\n]{1,60})\Z")
_OPERATOR = re.compile(r"[-+*/^]|\\times|\\cdot|\\frac|\\sqrt")


class MathOptions(RewardOptions):
    answer: str = "answer"
    """Column with the gold answer, or a list of accepted ones."""
    relative_tolerance: float = 0.0
    """For data sets of measured quantities: 0.01 accepts answers within one percent."""
    percent: str = "signed"
    """"signed": .5 and 50 are the same only when one carries a percent sign. "either": also without (golds that lost theirs)."""
    time_limit_s: float = 2.0
    """Seconds of algebra for one pair of expressions."""
    max_workers: int = 2
    """Helper processes for algebra; each takes about 120 MiB."""


class MathAnswer(Reward[MathOptions]):
    """1.0 when the stated answer equals the gold."""

    kind = "math"
    options_type = MathOptions

    def __init__(self, name: str | None = None, base_dir: Path | None = None, **options: Any) -> None:
        super().__init__(name, base_dir, **options)
        self.rules = Rules(self.options.relative_tolerance, self.options.percent == "either")
        self.pool = KillablePool(math_symbolic, self.options.time_limit_s, max_workers=self.options.max_workers)
        self.known: dict[Pair, bool] = {}
        self.stopped: set[Pair] = set()
        """Pairs that algebra could not decide within its limit."""

    def judge(self, completion: str, row: Row) -> Verdict:
        return self.judge_batch([completion], [row])[0]

    def judge_batch(self, completions: Sequence[str], rows: Sequence[Row]) -> list[Verdict]:
        cases = [self._case(completion, row) for completion, row in zip(completions, rows, strict=True)]
        open_pairs: set[Pair] = set()
        for case in cases:
            if not isinstance(case, Verdict):
                for gold in case[0]:
                    comparison = Comparison(self.rules, self.known)
                    comparison.equal(gold, case[1])
                    open_pairs |= comparison.needed
        self._ask_algebra(sorted(open_pairs))
        return [case if isinstance(case, Verdict) else self._verdict(*case) for case in cases]

    def close(self) -> None:
        self.pool.close()

    def _case(self, completion: str, row: Row) -> Verdict | tuple[list[str], str]:
        """The golds and the stated answer, or the verdict when there is nothing to compare."""
        golds = [gold for raw in accepted_answers(column(row, self.options.answer)) if (gold := gold_answer(raw))]
        if not golds:
            return Verdict(None, f"the gold in column {self.options.answer!r} cannot be read")
        try:
            stated = stated_answer(completion[-MAX_COMPLETION:], row.get("prompt"), golds)
        except RecursionError as error:
            return exception_verdict(error)
        return Verdict(0.0, stated[1]) if stated[0] is None else (golds, stated[0])

    def _ask_algebra(self, pairs: Sequence[Pair]) -> None:
        if not pairs:
            return
        outcomes = self.pool.run([{"gold": gold, "said": said} for gold, said in pairs])
        for pair, outcome in zip(pairs, outcomes, strict=True):
            self.known[pair] = outcome.value is True
            if outcome.fault in ("timeout", "crashed"):
                self.stopped.add(pair)

    def _verdict(self, golds: list[str], said: str) -> Verdict:
        shown = shorten(said, 40)
        for gold in golds:
            comparison = Comparison(self.rules, self.known)
            if comparison.equal(gold, said):
                return Verdict(1.0, f"{shown} equals {shorten(gold, 40)}")
            if any(pair[1] in said and pair in self.stopped for pair in self.stopped):
                return Verdict(0.0, f"{shown} could not be compared within {self.options.time_limit_s:g} s of algebra")
        return Verdict(0.0, f"{shown} is not {shorten(golds[0], 40)}")


@lru_cache(maxsize=4096)
def gold_answer(text: str) -> str | None:
    """The answer part of a gold column: after "####", in a box, after "A:", or the text itself."""
    if "####" in text:
        found = text.rsplit("####", 1)[1].strip().splitlines()
        return found[0].strip() or None if found else None
    stated = find_answer(text)
    if stated.rule in ("boxed", "answer_tag") or (stated.rule == "phrase" and "\n" in text.strip()):
        return stated.text or None
    return text.strip() or None


def stated_answer(completion: str, prompt: Any, golds: Sequence[str]) -> tuple[str | None, str]:
    """(answer, "") or (None, why there is none)."""
    asked = _prompt_text(prompt)
    if asked and len(completion.strip()) >= 20:
        if completion.strip() in asked:
            return None, "the completion repeats the prompt"
        completion = completion.replace(asked.strip(), " ") if len(asked.strip()) >= 20 else completion
    found = find_answer(completion)
    if found.rule == "whole" and asked and len(sentence := last_sentence(found.text)) >= 12 and sentence in asked:
        return None, "no answer is marked, and the last sentence repeats the prompt"
    said, why = _readable(found, completion, golds)
    if said is not None and asked and _echoes(said, asked) and not _is_given_value(said, golds):
        return None, f"{shorten(said, 40)} repeats an expression of the question"
    return said, why


def _readable(found: FoundAnswer, completion: str, golds: Sequence[str]) -> tuple[str | None, str]:
    if found.rule in WHY_NONE:
        return None, WHY_NONE[found.rule]
    if found.rule != "whole" and is_negated(found.text) and not any(map(is_negated, golds)):
        return None, f"the answer {shorten(found.text, 40)} is denied"
    if found.rule == "whole":
        return _unmarked(found.text, golds)
    if not found.text:
        return None, "the stated answer is empty"
    if found.rule == "boxed" and any("," in gold for gold in golds):
        return _boxes_together(completion, found.text), ""
    return found.text, ""


def _boxes_together(completion: str, last: str) -> str:
    """Several boxes in the last line state a list together."""
    line = completion.strip().splitlines()[-1]
    together = [body.strip() for _, body in boxes(line)]
    return ", ".join(together) if len(together) > 1 else last


def _unmarked(text: str, golds: Sequence[str]) -> tuple[str | None, str]:
    """The answer of a text that marks none: the text itself when short, or the one number of its last sentence."""
    if is_negated(last_sentence(text)) and not any(map(is_negated, golds)):
        return None, "no answer is marked, and the text denies something"
    if not text:
        return None, "the completion is empty"
    numeric = all(parse_quantity(gold) is not None for gold in golds)
    if len(text) <= 80 and len(text.split()) <= 6 and "\n" not in text and not (numeric and _is_sentence(text)):
        return text, ""
    tokens = text[-4000:].split()
    numbers = sum(1 for token in tokens if token[:1].isdigit() or token[1:2].isdigit())
    if numbers >= 4 and 2 * numbers >= len(tokens):
        return None, "no answer is marked, and the text lists numbers"
    sentence = tidy(last_sentence(text))
    if equation := _ENDS_IN_EQUATION.search(sentence):
        return equation[1].strip(), ""
    values = {match.group() for match in _NUMBER_LIKE.finditer(sentence)}
    if len(values) == 1:
        return values.pop(), ""
    return None, 'no answer is marked (boxed, <answer>, ####, or "the answer is")'


def _is_sentence(text: str) -> bool:
    """Whether a short text says more than a number and its unit ("The total is 18")."""
    return parse_quantity(text) is None and bool(re.search(r"[A-Za-z]{2,}|\A\s*=", text)) and "\\" not in text


def _prompt_text(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Sequence):
        return "\n".join(
            completion_text([{**message, "role": "assistant"}]) for message in prompt if isinstance(message, Mapping)
        )
    return ""


def _echoes(said: str, asked: str) -> bool:
    """Whether an answer is an unevaluated expression copied from the question."""
    return len(said) >= 3 and bool(_OPERATOR.search(said[1:])) and _squeezed(said) in _squeezed(asked)


def _is_given_value(said: str, golds: Sequence[str]) -> bool:
    """Whether a copied answer is a value as it stands: a gold's own spelling, or a fraction where the gold is one."""
    number = parse_quantity(said)
    is_fraction = number is not None and number.value.denominator != 1
    return is_fraction or tidy(said) in {tidy(gold) for gold in golds}


def _squeezed(text: str) -> str:
    return re.sub(r"\s+|\$|\\left|\\right|[{}]", "", text)
