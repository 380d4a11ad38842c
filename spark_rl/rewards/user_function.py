"""A user's own reward: a plain TRL callable in a Python file.

In:  completions and the row's columns as keyword lists. Out: what the function returned, under the boundary rules.
It runs in a process that can be killed, so that a function that hangs stops the run with a sentence and not silently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError
from spark_rl.rewards import user_worker
from spark_rl.rewards.base import Reward, RewardBug, RewardOptions, Row, Verdict, as_verdict, check_shape
from spark_rl.rewards.user_worker import TRAINER_ARGUMENTS, load_function
from spark_rl.rewards.workers import KillablePool


class UserFunctionOptions(RewardOptions):
    file: str
    """Python file, relative to the task file."""
    function: str = "reward"
    """Name of a callable in it: `def reward(completions, **columns) -> list[float | None]`."""
    messages: bool = False
    """Hand over completions as lists of messages, for functions written for conversational data."""
    isolated: bool = True
    """Run in a helper process. false: in this one, where a hanging function cannot be stopped."""
    time_limit_s: float = 10.0
    """Seconds for one completion; a batch may take this times its size."""


class UserFunction(Reward[UserFunctionOptions]):
    """The values of the user's function, one per completion."""

    kind = "python"
    options_type = UserFunctionOptions

    def __init__(self, name: str | None = None, base_dir: Path | None = None, **options: Any) -> None:
        super().__init__(name, base_dir, **options)
        self.path = (self.base_dir / self.options.file).resolve()
        self.function: Callable[..., Any] | None = None
        self.pool: KillablePool | None = None
        if self.options.isolated:
            setup = {"file": str(self.path), "function": self.options.function}
            self.pool = KillablePool(
                user_worker, self.options.time_limit_s, setup, counts_cpu=False, max_workers=1, memory_bytes=0
            )
            self.pool.warm()  # a missing file or function is told now and not at the first score
        else:
            self.function = load_function(self.path, self.options.function)

    def judge(self, completion: str, row: Row) -> Verdict:
        return self.judge_batch([completion], [row])[0]

    def judge_batch(self, completions: Sequence[str], rows: Sequence[Row]) -> list[Verdict]:
        shown: list[Any] = list(completions)
        if self.options.messages:
            shown = [[{"role": "assistant", "content": text}] for text in completions]
        names = sorted({name for row in rows for name in row} - {"completions", *TRAINER_ARGUMENTS})
        columns = {"prompts" if name == "prompt" else name: [row.get(name) for row in rows] for name in names}
        if self.function is not None:
            values = check_shape(self.__name__, self.function(completions=shown, **columns), len(completions))
            return [as_verdict(value) for value in values]
        return self._isolated(shown, columns)

    def check_rows(self, rows: Sequence[Row]) -> None:
        if self.pool is not None:
            for row in rows:
                self._refuse_unsendable(row)
        super().check_rows(rows)

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()

    def _isolated(self, completions: Sequence[Any], columns: Mapping[str, Any]) -> list[Verdict]:
        assert self.pool is not None
        self._refuse_unsendable(columns)
        payload = {"completions": list(completions), "columns": dict(columns)}
        limit_s = self.options.time_limit_s * max(1, len(completions))
        outcome = self.pool.run([payload], limit_s)[0]
        if outcome.fault == "raised":
            return [Verdict(None, f"the reward raised {outcome.detail}", is_bug=True)] * len(completions)
        if outcome.fault is not None:
            reason = f"the reward did not return within {limit_s:g} s for {len(completions)} completions"
            return [
                Verdict(
                    None,
                    reason if outcome.fault == "timeout" else f"the reward's process died: {outcome.detail}",
                    is_bug=True,
                )
            ] * len(completions)
        if "shape" in outcome.value:
            raise RewardBug(
                f"reward {self.__name__!r} returned one {outcome.value['shape']}, expected a list of {len(completions)} values",
                "return one value (or None) per completion: a single number would give every completion the same score",
            )
        values = check_shape(self.__name__, outcome.value["values"], len(completions))
        return [as_verdict(value) for value in values]

    def _refuse_unsendable(self, columns: Mapping[str, Any]) -> None:
        """Raises ConfigError naming the first column that is not JSON: bytes, dates, images."""
        for name, value in columns.items():
            if fault := _json_fault(value):
                raise ConfigError(
                    f"reward {self.__name__!r} runs in its own process, and column {name!r} cannot be sent there: {fault}",
                    "write the column as text or numbers, leave it out, or set isolated = false for this part",
                )


def _json_fault(value: Any) -> str | None:
    """Why a value cannot be written as JSON; None when it can."""
    if value is None or isinstance(value, str | int | float):
        return None  # most are: a hundred thousand rows must not take seconds
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        return str(error)
    return None
