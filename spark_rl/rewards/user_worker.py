"""Loads a user's reward function, and calls it inside a helper process.

In: {"completions", "columns"}. Out: {"values": [...]} as the function returned them, or {"shape": what it returned instead}.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError, did_you_mean
from spark_rl.rewards.base import RewardBug, check_shape

TRAINER_ARGUMENTS = ("trainer_state", "log_extra", "log_metric", "environments")
"""What TRL hands to a reward besides columns; none of it can cross into another process, so none of it is passed."""

_FUNCTION: dict[str, Any] = {}
"""The user's function; set once by `prepare`."""


def prepare(setup: dict[str, Any]) -> None:
    """Import the user's file; its folder is importable, as when it is run as a script."""
    path = Path(setup["file"])
    sys.path.insert(0, str(path.parent))
    _FUNCTION["call"] = load_function(path, setup["function"])


def handle(payload: dict[str, Any]) -> Mapping[str, Any]:
    """The function's values; numbers of numpy and torch become plain ones."""
    return plain_values(_FUNCTION["call"](completions=payload["completions"], **payload["columns"]))


def load_function(path: Path, name: str) -> Callable[..., Any]:
    """The callable `name` of a Python file.

    ConfigError when the file or the name is not there, or when it asks for what only a trainer in this process could give.
    """
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
    if asked := _trainer_arguments_of(found):
        raise ConfigError(
            f"reward file {path}: {name} asks for {', '.join(asked)}, which is not passed: a reward here sees completions "
            "and columns, not the trainer",
            "take the parameter out; to log a quantity, return it from a [[reward]] part of its own with weight = 0",
        )
    return found


def _trainer_arguments_of(function: Callable[..., Any]) -> list[str]:
    """The arguments of TRL's trainer that a function names, whether or not it could do without."""
    try:
        named = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some built-in callables do not tell
        return []
    return [name for name in TRAINER_ARGUMENTS if name in named]


def plain_values(result: Any) -> dict[str, Any]:
    """A function's result as JSON: {"values": [...]}, or {"shape": ...} when it is not a list of values."""
    try:
        values = check_shape("", result, -1)
    except RewardBug:
        return {"shape": type(result).__name__}
    return {"values": [_plain(value) for value in values]}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return {"type": type(value).__name__}
