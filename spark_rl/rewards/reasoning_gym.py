"""Rewards by the scorers of the reasoning-gym package, without the credit that some of them give to junk.

In:  a completion, and a row of a reasoning-gym data set (answer, question, metadata). Out: 1.0 or 0.0 (or the scorer's
own number with `partial_credit`) for the stated final answer, never for the text around it.
Scorers run in a killable process. A scorer that gives junk as much as the gold is refused; one that raises is a bug,
unless the option says that what it cannot read is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError
from spark_rl.rewards import gym_worker
from spark_rl.rewards.base import Reward, RewardOptions, Row, Verdict, column, shorten
from spark_rl.rewards.extract import WHY_NONE, find_answer
from spark_rl.rewards.workers import KillablePool, Outcome

JUNK_LIMIT = 0.5
"""A scorer that gives junk at least this much is not measuring the answer."""


class ReasoningGymOptions(RewardOptions):
    dataset: str
    """Name of the task in reasoning-gym, such as "chain_sum"."""
    answer: str = "answer"
    metadata: str = "metadata"
    """Column with the entry's metadata, as an object or JSON text."""
    question: str = "question"
    partial_credit: bool = False
    """Pass on scores between 0 and 1; several scorers give some to any text."""
    unreadable_is_wrong: bool = False
    """Count an exception of the scorer as a wrong answer instead of a bug of the reward."""
    time_limit_s: float = 5.0


class ReasoningGym(Reward[ReasoningGymOptions]):
    """What the package's scorer says about the stated answer."""

    kind = "reasoning_gym"
    options_type = ReasoningGymOptions

    def __init__(self, name: str | None = None, base_dir: Path | None = None, **options: Any) -> None:
        super().__init__(name, base_dir, **options)
        self.pool = KillablePool(
            gym_worker, self.options.time_limit_s, setup={"dataset": self.options.dataset}, max_workers=1
        )

    def judge(self, completion: str, row: Row) -> Verdict:
        return self.judge_batch([completion], [row])[0]

    def judge_batch(self, completions: Sequence[str], rows: Sequence[Row]) -> list[Verdict]:
        found = [find_answer(completion) for completion in completions]
        said = ["" if one.rule in WHY_NONE else one.text for one in found]
        outcomes = self.pool.run(
            [{"entry": self._entry(row), "said": text} for text, row in zip(said, rows, strict=True)]
        )
        return [self._verdict(text, outcome) for text, outcome in zip(said, outcomes, strict=True)]

    def close(self) -> None:
        self.pool.close()

    def _entry(self, row: Row) -> dict[str, Any]:
        metadata = column(row, self.options.metadata)
        answer = column(row, self.options.answer)
        return {
            "question": row.get(self.options.question, ""),
            "answer": answer,
            "metadata": json.loads(metadata) if isinstance(metadata, str) else metadata,
        }

    def _verdict(self, said: str, outcome: Outcome) -> Verdict:
        shown = shorten(said, 40)
        if outcome.fault == "raised":
            if self.options.unreadable_is_wrong:
                return Verdict(0.0, f"{shown!r} cannot be read by the scorer ({shorten(outcome.detail, 60)})")
            return Verdict(None, f"the scorer raised on {shown!r}: {shorten(outcome.detail, 100)}", is_bug=True)
        if outcome.fault is not None:
            return Verdict(0.0, f"{shown!r} was not scored within {self.options.time_limit_s:g} s")
        score, junk = outcome.value["score"], outcome.value["junk"]
        if junk >= JUNK_LIMIT:
            raise ConfigError(
                f"reasoning-gym's scorer for {self.options.dataset!r} gives {junk:g} to the answer 'banana'",
                'use kind = "exact" for this task: its gold is a short text' if outcome.value["has_gold"] else None,
            )
        if not said:
            return Verdict(0.0, "no answer is stated")
        if self.options.partial_credit:
            return Verdict(0.0 if score <= junk else score, f"scored {score:g} for {shown!r}")
        return Verdict(1.0 if score >= 1.0 else 0.0, f"scored {score:g} for {shown!r}")
