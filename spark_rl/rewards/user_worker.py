"""Loads a user's reward function, and calls it inside a helper process.

In: {"completions", "columns"}. Out: {"values": [...]} as the function returned them, or {"shape": what it returned instead}.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError, did_you_mean
from spark_rl.rewards.base import RewardBug, check_shape

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
