"""What a regular expression finds in a text; also the handler that runs it in a helper process.

In: the text and the pattern's settings. Out: the deciding group of the deciding match, or None.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

_SETUP: dict[str, Any] = {}
"""The settings of this helper process; set once by `prepare`."""


def prepare(setup: dict[str, Any]) -> None:
    """Keep the settings."""
    _SETUP.update(setup)


def handle(payload: str) -> str | None:
    """What the pattern finds in the text."""
    return found_text(payload, _SETUP)


@functools.lru_cache(maxsize=64)
def _compiled(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def found_text(text: str, setup: Mapping[str, Any]) -> str | None:
    """The group named "answer", else group 1, else the whole of the deciding match; None without a match."""
    pattern = _compiled(setup["pattern"], setup["ignore_case"])
    decided: re.Match[str] | None = None
    if setup["match"] == "fullmatch":
        decided = pattern.fullmatch(text)
    else:
        for match in pattern.finditer(text):
            decided = match
            if not setup["last"]:
                break
    if decided is None:
        return None
    group: str | int = "answer" if "answer" in pattern.groupindex else min(1, pattern.groups)
    return decided.group(group) or ""
