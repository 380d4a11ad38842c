"""Several rewards as one: weights, every part logged apart, and one total per completion.

In: parts with their rewards. Out: `Scored` per completion, or the list of functions and weights that TRL takes.
Rules: a part that does not apply is left out; a row where no part applies, or where a reward failed, has no total.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError
from spark_rl.rewards.base import (
    Completion,
    Reward,
    RewardPart,
    Row,
    Verdict,
    check_shape,
    completion_text,
    exception_verdict,
    raise_on_bugs,
    rows_from_columns,
    settled,
)
from spark_rl.rewards.registry import build_reward

RewardFunction = Callable[..., list[float | None]]
AsyncRewardFunction = Callable[..., Awaitable[list[float | None]]]


@dataclass(frozen=True)
class Scored:
    """One completion's score."""

    total: float | None
    """Weighted sum over the parts that apply; None when none does or a reward failed."""
    parts: dict[str, Verdict]
    correct: bool | None
    """All parts that mean "correct" and apply are satisfied; None when none applies or one failed."""


class Composite:
    """Weighted parts. With `gate_on_format`, correctness counts only where every format part holds."""

    def __init__(self, parts: Sequence[tuple[RewardPart, Reward[Any]]], gate_on_format: bool = False) -> None:
        if not parts:
            raise ConfigError("a reward needs at least one part")
        self.parts = tuple(parts)
        self.gate_on_format = gate_on_format
        self.bugs: Counter[str] = Counter()
        """How often each part failed (raised, hung, NaN) since this object was made."""

    @classmethod
    def build(cls, parts: Sequence[RewardPart], base_dir: Path, gate_on_format: bool = False) -> Composite:
        """A composite from the parts of a task file; paths in options are relative to `base_dir`."""
        return cls([(part, build_reward(part, base_dir)) for part in parts], gate_on_format)

    @property
    def weights(self) -> list[float]:
        """TRL's `reward_weights`, in the order of `trl_functions`."""
        return [part.weight for part, _ in self.parts]

    def check_rows(self, rows: Sequence[Row]) -> None:
        """Raises ConfigError when a part cannot judge by these rows; asked before a model is loaded."""
        for _, reward in self.parts:
            reward.check_rows(rows)

    def score(self, completions: Sequence[Completion], rows: Sequence[Row]) -> list[Scored]:
        """One score per completion. RewardBug for a scalar or a wrong length; other failures are counted in `bugs`."""
        texts = [completion_text(completion) for completion in completions]
        columns = {part.name: self._judge(part, reward, texts, rows) for part, reward in self.parts}
        per_row = [{name: verdicts[index] for name, verdicts in columns.items()} for index in range(len(texts))]
        return [self._scored(self._gated(verdicts)) for verdicts in per_row]

    async def score_async(self, completions: Sequence[Completion], rows: Sequence[Row]) -> list[Scored]:
        """`score` in a thread: the event loop goes on generating meanwhile."""
        return await asyncio.to_thread(self.score, completions, rows)

    def trl_functions(self) -> list[RewardFunction]:
        """One function per part for TRL's `reward_funcs`; a failure raises RewardBug and stops the run."""
        return [self._trl_function(part, reward) for part, reward in self.parts]

    def trl_async_functions(self) -> list[AsyncRewardFunction]:
        """The same as coroutines: TRL gathers them, so slow parts run side by side."""
        return [_as_coroutine(function) for function in self.trl_functions()]

    def close(self) -> None:
        """Stop helper processes of all parts."""
        for _, reward in self.parts:
            reward.close()

    def _judge(self, part: RewardPart, reward: Reward[Any], texts: Sequence[str], rows: Sequence[Row]) -> list[Verdict]:
        try:
            result = reward.judge_batch(texts, rows)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001  reward boundary: counted as the reward's bug and shown
            result = [exception_verdict(error)] * len(texts)
        verdicts = [settled(verdict) for verdict in check_shape(part.name, result, len(texts))]
        failed = sum(verdict.is_bug for verdict in verdicts)
        if failed:
            self.bugs[part.name] += failed
        return verdicts

    def _trl_function(self, part: RewardPart, reward: Reward[Any]) -> RewardFunction:
        gates = self._format_parts() if self.gate_on_format and part.means == "correct" else []

        def function(completions: Sequence[Completion], **columns: Any) -> list[float | None]:
            texts = [completion_text(completion) for completion in completions]
            rows = rows_from_columns(len(texts), columns)
            verdicts = self._judge(part, reward, texts, rows)
            raise_on_bugs(part.name, verdicts)
            for gate, gate_reward in gates:
                held = self._judge(gate, gate_reward, texts, rows)
                raise_on_bugs(gate.name, held)
                verdicts = [_gate(one, gate.name, by) for one, by in zip(verdicts, held, strict=True)]
            return [verdict.value for verdict in verdicts]

        function.__name__ = part.name
        return function

    def _format_parts(self) -> list[tuple[RewardPart, Reward[Any]]]:
        return [(part, reward) for part, reward in self.parts if part.means == "format"]

    def _gated(self, verdicts: dict[str, Verdict]) -> dict[str, Verdict]:
        if not self.gate_on_format:
            return verdicts
        result = dict(verdicts)
        for part, _ in self.parts:
            if part.means == "correct":
                for gate, _reward in self._format_parts():
                    result[part.name] = _gate(result[part.name], gate.name, verdicts[gate.name])
        return result

    def _scored(self, verdicts: dict[str, Verdict]) -> Scored:
        terms: list[float] = []
        correct: bool | None = None
        for part, reward in self.parts:
            verdict = verdicts[part.name]
            if verdict.is_bug:
                return Scored(None, verdicts, None)
            if verdict.value is None:
                continue
            if part.weight != 0:
                terms.append(part.weight * verdict.value)
            if part.means == "correct":
                correct = correct is not False and verdict.value >= reward.options.correct_at
        return Scored(sum(terms) if terms else None, verdicts, correct)


def _gate(verdict: Verdict, gate_name: str, gate: Verdict) -> Verdict:
    """The verdict where the gate holds, does not apply or failed; else 0 for a positive value."""
    if verdict.value is None or verdict.value <= 0 or gate.value is None or gate.value >= 1.0:
        return verdict
    return Verdict(0.0, f"not counted: {gate_name} does not hold ({gate.reason})")


def _as_coroutine(function: RewardFunction) -> AsyncRewardFunction:
    async def coroutine(completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        return await asyncio.to_thread(function, completions, **columns)

    coroutine.__name__ = function.__name__
    return coroutine
