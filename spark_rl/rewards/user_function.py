"""A user's own reward: a plain TRL callable in a Python file.

In: completions and the row's columns as keyword lists. Out: what the function returned, under the boundary rules.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError, did_you_mean
from spark_rl.rewards.base import Reward, RewardOptions, Row, Verdict, as_verdict, check_shape


class UserFunctionOptions(RewardOptions):
    file: str
    """Python file, relative to the task file."""
    function: str = "reward"
    """Name of a callable in it: `def reward(completions, **columns) -> list[float | None]`."""
    messages: bool = False
    """Hand over completions as lists of messages, for functions written for conversational data."""


def load_function(path: Path, name: str) -> Callable[..., Any]:
    """The callable `name` of a Python file; ConfigError when the file or the name is not there."""
    if not path.is_file():
        raise ConfigError(f"reward file {path} does not exist")
    spec = importlib.util.spec_from_file_location(f"user_reward_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"reward file {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"reward file {path} cannot be imported: {type(error).__name__}: {error}") from error
    names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    if name not in names:
        raise ConfigError(
            f"reward file {path} has no function {name!r}",
            did_you_mean(name, names) or "functions: " + (", ".join(names) or "none"),
        )
    found: Callable[..., Any] = getattr(module, name)
    return found


class UserFunction(Reward[UserFunctionOptions]):
    """The values of the user's function, one per completion."""

    kind = "python"
    options_type = UserFunctionOptions

    def __init__(self, name: str | None = None, base_dir: Path | None = None, **options: Any) -> None:
        super().__init__(name, base_dir, **options)
        self.path = self.base_dir / self.options.file
        self.function = load_function(self.path, self.options.function)

    def judge(self, completion: str, row: Row) -> Verdict:
        return self.judge_batch([completion], [row])[0]

    def judge_batch(self, completions: Sequence[str], rows: Sequence[Row]) -> list[Verdict]:
        shown: list[Any] = list(completions)
        if self.options.messages:
            shown = [[{"role": "assistant", "content": text}] for text in completions]
        names = sorted({name for row in rows for name in row} - {"completions"})
        columns = {"prompts" if name == "prompt" else name: [row.get(name) for row in rows] for name in names}
        result = self.function(completions=shown, **columns)
        return [as_verdict(value) for value in check_shape(self.__name__, result, len(completions))]
