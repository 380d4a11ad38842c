"""JSON in model text: where it is looked for, and what counts as JSON. Never evaluates anything.

In: the completion. Out: the value, or one reason why there is none. Order, after any closed reasoning block:
1. the whole text;  2. the first fenced block (one marked json before an unmarked one);
3. the first balanced {...} or [...] that is JSON.  What is found first is judged; later ones are not tried.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from spark_rl.rewards.extract import after_reasoning, balanced

MAX_STARTS = 16
"""Brackets in prose that may be tried before giving up, so that hostile text stays cheap."""
_FENCE = re.compile(r"```([A-Za-z0-9_+-]*)[ \t]*\r?\n(.*?)(?:```|\Z)|```(json)?[ \t]*([\[{\"].*?)```", re.DOTALL)
_START = re.compile(r"[{\[]")


@dataclass(frozen=True)
class FoundJson:
    """The JSON value of a completion, or why there is none."""

    value: Any = None
    fault: str | None = None
    where: str = ""


class NotJson(ValueError):
    """The text is not JSON as RFC 8259 has it, with unique keys and finite numbers."""


def parse_json(text: str) -> Any:
    """The value of a JSON text. Raises NotJson: also for NaN, Infinity, a repeated key, and nesting too deep to read."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique)
    except NotJson:
        raise
    except json.JSONDecodeError as error:
        raise NotJson(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]} at character {error.pos}") from None
    except RecursionError:
        raise NotJson("not JSON that can be read: nested too deeply") from None
    except ValueError:  # an integer of thousands of digits
        raise NotJson("not JSON that can be read: a number is too long") from None


def find_json(completion: str) -> FoundJson:
    """The JSON of a completion by the order above."""
    text = after_reasoning(completion)
    if text is None:
        return FoundJson(fault="the reasoning block is not closed, so no JSON is stated")
    text = text.strip().lstrip("\ufeff")
    if not text:
        return FoundJson(fault="the completion is empty")
    try:
        return _unless_nested_text(parse_json(text), "whole text")
    except NotJson as error:
        whole_fault = str(error)
    if block := _fenced(text):
        try:
            return _unless_nested_text(parse_json(block), "fenced block")
        except NotJson as error:
            return FoundJson(fault=f"the fenced block is {error}")
    return _first_balanced(text, whole_fault)


def _fenced(text: str) -> str | None:
    blocks = [(match[1] or match[3] or "", match[2] or match[4] or "") for match in _FENCE.finditer(text)]
    marked = [body for language, body in blocks if language.lower() in ("json", "jsonc", "json5")]
    unmarked = [body for language, body in blocks if not language]
    chosen = marked or unmarked
    return chosen[0].strip() if chosen else None


def _first_balanced(text: str, whole_fault: str) -> FoundJson:
    position = 0
    fault = whole_fault if text[0] in '{["' else "no JSON in the completion"
    for _ in range(MAX_STARTS):
        start = _START.search(text, position)
        if start is None:
            break
        end = balanced_json(text, start.start())
        if end is None:
            return FoundJson(fault=f"the JSON that starts at character {start.start()} never ends")
        try:
            return FoundJson(parse_json(text[start.start() : end]), where="first balanced object")
        except NotJson as error:
            fault = f"the first bracketed text is {error}" if position == 0 else fault
        position = end
    return FoundJson(fault=fault)


def balanced_json(text: str, start: int) -> int | None:
    """Index just after the bracket group at `start`; brackets inside JSON strings do not count."""
    depth = 0
    index = start
    while index < len(text):
        character = text[index]
        if character == '"':
            index = _string_end(text, index)
            continue
        if character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
            if depth == 0:
                return index + 1
        index += 1
    return balanced(text, start, text[start], "}" if text[start] == "{" else "]")


def _string_end(text: str, start: int) -> int:
    index = start + 1
    while index < len(text) and text[index] != '"':
        index += 2 if text[index] == "\\" else 1
    return index + 1


def _unless_nested_text(value: Any, where: str) -> FoundJson:
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            return FoundJson(value, where=where)
        return FoundJson(fault="the JSON is a string that holds JSON: write the object itself")
    return FoundJson(value, where=where)


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"not JSON: {name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotJson("not JSON that can be read: a number is too large")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise NotJson(
            f"not usable JSON: the key {next(name for name in names if names.count(name) > 1)!r} is given twice"
        )
    return result
