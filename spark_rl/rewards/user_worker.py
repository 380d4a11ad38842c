"""Calls a user's reward function, inside a helper process.

In: {"completions", "columns"}. Out: {"values": [...]} as the function returned them, or {"shape": what it returned instead}.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_rl.rewards.user_function import load_function, plain_values

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
