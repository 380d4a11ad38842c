"""Text that a model wrote, made safe to look at: what cannot be seen is spelt out, what is too long is cut with a count."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

MAX_CHARS = 1_500
"""Of one completion on the page; a reader sees the rest in samples/."""

_KEPT = "\n\t"
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
"""Unicode categories that print as nothing or turn the text around: controls, format marks, unassigned, private use."""


def visible(text: str, limit: int = MAX_CHARS) -> str:
    """The text with invisible and direction-changing characters written as escapes, cut at `limit` characters."""
    shown = "".join(_spelt(character) for character in text[:limit].replace("\r\n", "\n"))
    rest = len(text) - limit
    return f"{shown}\n… ({rest:,} more characters)" if rest > 0 else shown


def value_text(value: Any) -> str:
    """A setting as it would be written in a file; None is "not set"."""
    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _spelt(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in _HIDDEN_CATEGORIES:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
