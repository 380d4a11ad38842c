"""Model output as harmless text: nothing a completion holds can move the cursor, change colours or pass for our words.

In: any text and the encoding of the terminal. Out: lines of printable characters no wider than asked. Pure.
Control, format and unencodable characters are written as escapes (\\x1b, \\u202e); every line of foreign text begins
with a bar, so that a completion cannot imitate a score line.
"""

from __future__ import annotations

import unicodedata

NEW_LINE, CONTINUED = "| ", ": "
"""Begin of a line of the text itself, and of a line that only continues because the terminal is narrow."""

MAX_MARKS = 2
"""Combining marks kept on one character; more of them would grow into other lines."""

_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MARKS = {"Mn", "Me"}
_INVISIBLE = {"\u115f", "\u1160", "\u3164", "\uffa0", "\u2800"}
"""Letters and symbols that draw nothing (Hangul fillers, the empty braille cell)."""


def printable(text: str, encoding: str = "utf-8") -> str:
    """The text on one line; what is not plainly visible is written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    num_marks = 0
    for character in text:
        category = unicodedata.category(character)
        num_marks = num_marks + 1 if category in _MARKS else 0
        hidden = category in _HIDDEN_CATEGORIES or character in _INVISIBLE or num_marks > MAX_MARKS
        odd_space = category == "Zs" and character != " "
        if hidden or odd_space or (num_marks and not shown) or not _encodable(character, encoding):
            shown.append(_escape(character))
        else:
            shown.append(character)
    return "".join(shown)


def block(text: str, width: int, encoding: str = "utf-8") -> list[str]:
    """Foreign text as lines of at most `width` cells, each behind a bar; a trailing space is made visible."""
    if not text:
        return [f"{NEW_LINE}(empty)"]
    lines: list[str] = []
    for line in text.split("\n"):
        shown = printable(line, encoding)
        if shown.endswith(" "):
            shown = shown[:-1] + "\\x20"
        pieces = wrap(shown, max(1, width - len(NEW_LINE)))
        lines += [(NEW_LINE if index == 0 else CONTINUED) + piece for index, piece in enumerate(pieces)]
    return lines


def one_line(text: str, width: int, encoding: str = "utf-8") -> str:
    """Text as one line of at most `width` cells, cut with dots."""
    shown = printable(" ".join(text.split()), encoding)
    if cells(shown) <= width:
        return shown
    return wrap(shown, max(1, width - 3))[0] + "..."


def wrap(text: str, width: int) -> list[str]:
    """The text cut into pieces of at most `width` cells (a wide character may stand alone); one empty piece for none."""
    if text.isascii():
        return [text[start : start + width] for start in range(0, len(text), width)] or [""]
    pieces: list[str] = []
    piece, used = "", 0
    for character in text:
        size = cell_width(character)
        if piece and used + size > width:
            pieces.append(piece)
            piece, used = "", 0
        piece, used = piece + character, used + size
    return [*pieces, piece]


def sentence_lines(text: str, width: int, indent: str = "  ") -> list[str]:
    """Our own words broken between words; the first line is not indented."""
    lines: list[str] = []
    for word in text.split():
        if lines and cells(lines[-1]) + 1 + cells(word) <= width:
            lines[-1] += f" {word}"
        else:
            start = indent if lines else ""
            pieces = wrap(word, max(1, width - len(indent)))
            lines += [start + pieces[0], *(indent + piece for piece in pieces[1:])]
    return lines or [""]


def cells(text: str) -> int:
    """Columns that a terminal uses for the text."""
    return len(text) if text.isascii() else sum(map(cell_width, text))


def cell_width(character: str) -> int:
    if unicodedata.category(character) in _MARKS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _encodable(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    except LookupError:
        return character.isascii()
    return True


def _escape(character: str) -> str:
    if character in "\t\r\n":
        return {"\t": "\\t", "\r": "\\r", "\n": "\\n"}[character]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
