"""Soft overlong punishment: long completions lose up to one point, gradually, before the cap cuts them.

In:  a completion and its length: token ids where the trainer gives them, else a stated unit. Out: a value in [-1, 0].
0 up to `max_length - buffer`, then linear, -1 from `max_length` on (the shape of the DAPO paper, equation 13).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from spark_rl.rewards.base import Reward, RewardOptions, Row, Verdict, settled

Unit = Literal["tokens", "characters", "words"]


class LengthPenaltyOptions(RewardOptions):
    max_length: int = Field(gt=0)
    """From here on the penalty is full; the run's max_completion_length is the usual value."""
    buffer: int = Field(gt=0)
    """Over how many units before max_length the penalty grows from 0."""
    unit: Unit = "tokens"
    """"tokens" needs the column completion_ids, which TRL gives during training; without it the part does not apply."""

    @model_validator(mode="after")
    def _room(self) -> LengthPenaltyOptions:
        if self.buffer > self.max_length:
            raise ValueError(f"buffer {self.buffer} is longer than max_length {self.max_length}")
        return self


def soft_overlong(length: int, max_length: int, buffer: int) -> float:
    """The penalty for a length: 0 up to max_length - buffer, -1 from max_length on, linear between."""
    return max(-1.0, min(0.0, (max_length - buffer - length) / buffer))


class LengthPenalty(Reward[LengthPenaltyOptions]):
    """The penalty as a part of its own: logged apart, weighted like any other."""

    kind = "length_penalty"
    options_type = LengthPenaltyOptions

    def judge(self, completion: str, row: Row) -> Verdict:
        length = _length(completion, row, self.options.unit)
        if length is None:
            return Verdict(None, "the number of tokens is not known here (no column completion_ids)")
        penalty = soft_overlong(length, self.options.max_length, self.options.buffer)
        return Verdict(penalty, f"{length} {self.options.unit}")


class WithLengthPenalty(Reward[LengthPenaltyOptions]):
    """Another reward plus the penalty, for scripts that want one function."""

    kind = "length_penalty"
    options_type = LengthPenaltyOptions

    def __init__(
        self, reward: Reward[Any], name: str | None = None, base_dir: Path | None = None, **options: Any
    ) -> None:
        super().__init__(name or reward.__name__, base_dir, **options)
        self.reward = reward
        self.penalty = LengthPenalty(**options)

    def judge(self, completion: str, row: Row) -> Verdict:
        return self.judge_batch([completion], [row])[0]

    def judge_batch(self, completions: Sequence[str], rows: Sequence[Row]) -> list[Verdict]:
        judged = [settled(verdict) for verdict in self.reward.judge_batch(completions, rows)]
        penalties = [self.penalty.judge(completion, row) for completion, row in zip(completions, rows, strict=True)]
        return [_sum(one, penalty) for one, penalty in zip(judged, penalties, strict=True)]

    def close(self) -> None:
        self.reward.close()


def _sum(judged: Verdict, penalty: Verdict) -> Verdict:
    if judged.value is None or penalty.value is None:
        return judged
    return Verdict(judged.value + penalty.value, f"{judged.reason}; {penalty.reason}")


def _length(completion: str, row: Row, unit: Unit) -> int | None:
    if unit == "characters":
        return len(completion)
    if unit == "words":
        return len(completion.split())
    ids = row.get("completion_ids")
    return None if ids is None else len(ids)
