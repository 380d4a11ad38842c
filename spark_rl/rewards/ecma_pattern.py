"""ECMA-262 regular expressions, as JSON Schema writes them, in Python's spelling.

In: a pattern. Out: the Python pattern with the same meaning; ValueError when Python has none.
Differences that matter: `$` is the very end, \\d \\w are ASCII, names are (?<name>...), unknown escapes are the character.
"""

from __future__ import annotations

import re
from functools import lru_cache

_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_"}
_PROPERTIES = {
    "L": r"[^\W\d_]",
    "Letter": r"[^\W\d_]",
    "Alphabetic": r"[^\W\d_]",
    "N": r"\d",
    "Nd": r"\d",
    "Lu": "[A-ZÀ-ÖØ-Þ]",
    "Ll": "[a-zß-öø-ÿ]",
}
_CLASS_BEFORE = re.compile(r"(?<!\\)\\[dDwWsS]\Z")
_CLASS_AFTER = re.compile(r"\\[dDwWsS]")
_KEPT = frozenset("sSbBtnrfv0123456789")


@lru_cache(maxsize=4096)
def python_pattern(pattern: str) -> str:
    """The same pattern for `re`. Raises ValueError naming the pattern when it cannot be used."""
    translated = _translated(pattern)
    try:
        re.compile(translated)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"pattern {pattern!r} cannot be used: {error}") from None
    return translated


def _translated(pattern: str) -> str:
    pieces: list[str] = []
    index = 0
    in_class = False
    while index < len(pattern):
        character = pattern[index]
        if character == "\\" and index + 1 < len(pattern):
            piece, index = _escape(pattern, index + 1, in_class)
            pieces.append(piece)
            continue
        if in_class:
            in_class = character != "]"
            pieces.append(_class_character(pattern, index))
        elif character == "[":
            if pattern.startswith("[^]", index):
                pieces.append(r"[\s\S]")
                index += 3
                continue
            if pattern.startswith("[]", index):
                pieces.append("(?!)")
                index += 2
                continue
            in_class = True
            pieces.append(character)
            if pattern.startswith("[^", index):
                pieces.append("^")
                index += 1
        elif character == "$":
            pieces.append(r"\Z")
        elif pattern.startswith("(?<", index) and pattern[index + 3 : index + 4] not in ("=", "!"):
            pieces.append("(?P<")
            index += 2
        else:
            pieces.append(character)
        index += 1
    return "".join(pieces)


def _class_character(pattern: str, index: int) -> str:
    """A plain character inside [...]: a hyphen beside a class such as \\w is a hyphen and no range."""
    character = pattern[index]
    beside_class = _CLASS_BEFORE.search(pattern[:index][-3:]) or _CLASS_AFTER.match(pattern, index + 1)
    return f"\\{character}" if character == "[" or (character == "-" and beside_class) else character


def _escape(pattern: str, index: int, in_class: bool) -> tuple[str, int]:
    """The Python spelling of the escape whose letter is at `index`, and where the pattern goes on."""
    letter = pattern[index]
    if letter in _CLASSES:
        return (_CLASSES[letter] if in_class else f"[{_CLASSES[letter]}]"), index + 1
    if letter in "DW":
        inside = _CLASSES[letter.lower()]
        return (f"\\{letter}" if in_class else f"[^{inside}]"), index + 1
    if letter in "pP" and (named := re.match(r"\{(?:Script=|General_Category=|gc=)?(\w+)\}", pattern[index + 1 :])):
        if named[1] not in _PROPERTIES or in_class or letter == "P":
            raise ValueError(f"pattern {pattern!r} cannot be used: \\{letter}{named[0]} is not supported here")
        return _PROPERTIES[named[1]], index + 1 + named.end()
    if letter == "u" and (braced := re.match(r"\{([0-9A-Fa-f]{1,6})\}", pattern[index + 1 :])):
        return re.escape(chr(int(braced[1], 16))), index + 1 + braced.end()
    if letter in "ux" and re.match(r"[0-9A-Fa-f]{4}" if letter == "u" else r"[0-9A-Fa-f]{2}", pattern[index + 1 :]):
        return f"\\{letter}", index + 1
    if letter == "c" and pattern[index + 1 : index + 2].isalpha():
        return re.escape(chr(ord(pattern[index + 1]) % 32)), index + 2
    if letter == "k" and (name := re.match(r"<(\w+)>", pattern[index + 1 :])):
        return f"(?P={name[1]})", index + 1 + name.end()
    if letter in _KEPT:
        return f"\\{letter}", index + 1
    return re.escape(letter), index + 1
