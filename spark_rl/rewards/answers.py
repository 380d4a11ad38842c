"""Whether two mathematical answers are the same, by structure: numbers, words, lists, sets, tuples, intervals, matrices.

In:  gold and stated answer as short texts, and what is already known about pairs of expressions.
Out: True, False, or None with the pairs of expressions that only algebra can decide (see math_symbolic.py).
Pure functions; no algebra package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from spark_rl.rewards.extract import is_negated
from spark_rl.rewards.quantity import equal_quantities, parse_quantity, tidy, without_text_commands

Pair = tuple[str, str]
MAX_ITEMS = 40
"""Longer lists are compared item by item in order only."""
MAX_ANSWER = 4000
"""Characters of an answer; a longer one is a text and not an answer."""
MAX_EXPRESSION = 400
"""Characters of one expression that is worth asking algebra about."""

_MATRIX = re.compile(r"\\begin\{([pbvBV]?)matrix\}(.*?)\\end\{\1matrix\}\Z", re.DOTALL)
_LEFT_SIDE = re.compile(
    r"(?:[A-Za-z]|\\[a-z]+|[A-Za-z]_\{?[\w\\]+\}?|\\?[A-Za-z]+\s*\([A-Za-z,\s]*\)|[A-Za-z]+(?:_\{[^{}]*\}|_\w)?)\s*"
    r"(?:=|\\approx|\\in(?![a-z])|\\to(?![a-z]))\s*"
)
_ARITHMETIC = re.compile(r"(?:[\d.\s(){}+*/^!,-]|\\times|\\cdot|\\div)+\Z")
_POWER = re.compile(r"\d{1,6}\s*\^\s*(?:\d|\{\s*\d{1,6}\s*\})")
_CHOICE = re.compile(r"\(?([A-Ja-j])\)?(?:\s*[.:)]\s*(.*))?\Z", re.DOTALL)
_CHOICE_WORDS = re.compile(r"\A(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)\s+(?:is\s+)?", re.IGNORECASE)
_OTHER_CHOICE = re.compile(r"(?:\(|\b)[A-J](?:\)|\b)")


@dataclass(frozen=True)
class Rules:
    """How strictly numbers are compared."""

    relative_tolerance: float = 0.0
    any_percent: bool = False


@dataclass
class Comparison:
    """One comparison: what algebra has said so far, and what it still has to be asked."""

    rules: Rules
    known: Mapping[Pair, bool]
    needed: set[Pair] = field(default_factory=set)

    def equal(self, gold: str, said: str, depth: int = 0) -> bool | None:
        """True or False; None while `needed` pairs are open."""
        if max(len(gold), len(said)) > MAX_ANSWER:
            return False
        gold, said = tidy(gold), tidy(said)
        if not gold or not said:
            return False
        if (quick := self._numbers_or_words(gold, said)) is not None:
            return quick
        if depth < 4 and (structural := self._structures(gold, said, depth)) != "atoms":
            return structural
        return self._expressions(gold, said, depth)

    def _numbers_or_words(self, gold: str, said: str) -> bool | None:
        gold_number, said_number = parse_quantity(gold), parse_quantity(said)
        if gold_number is not None and said_number is not None:
            return equal_quantities(gold_number, said_number, self.rules.relative_tolerance, self.rules.any_percent)
        if canonical(gold) == canonical(said):
            return True
        if (letter := choice_letter(gold)) and gold_number is None:
            return choice_letter(said, any_case=True) == letter
        gold_words, said_words = words(gold), words(said)
        if gold_words is not None:
            return gold_words == said_words
        if said_words is not None and gold_number is not None:
            return False
        return None

    def _structures(self, gold: str, said: str, depth: int) -> bool | Literal["atoms"] | None:
        if (matrix := _MATRIX.fullmatch(gold)) and (other := _MATRIX.fullmatch(said)):
            return self._matrices(matrix[2], other[2], depth)
        one, two = shape(gold), shape(said)
        if one.kind == two.kind == "atom":
            return "atoms"
        if "union" in (one.kind, two.kind):
            return self._unordered(one.items, two.items, depth) if one.kind == two.kind else False
        if "atom" in (one.kind, two.kind):
            atom = one if one.kind == "atom" else two
            return "atoms" if any(mark in atom.items[0] for mark in (r"\cup", r"\mid", "<", r"\le", r"\ge")) else False
        if one.kind == "tuple" and two.kind == "tuple":
            return self._ordered(one.items, two.items, depth) if one.brackets == two.brackets else False
        if "tuple" in (one.kind, two.kind):  # (1,2) against 1,2
            bracketed = one if one.kind == "tuple" else two
            other_kind = two.kind if one.kind == "tuple" else one.kind
            fits = bracketed.brackets == "()" and other_kind == "list"
            return self._ordered(one.items, two.items, depth) if fits else False
        return self._unordered(one.items, two.items, depth)

    def _matrices(self, gold: str, said: str, depth: int) -> bool | None:
        rows = [[cell.strip() for cell in row.split("&")] for row in gold.strip().strip("\\").split(r"\\")]
        other = [[cell.strip() for cell in row.split("&")] for row in said.strip().strip("\\").split(r"\\")]
        if [len(row) for row in rows] != [len(row) for row in other]:
            return False
        return self._ordered([cell for row in rows for cell in row], [cell for row in other for cell in row], depth)

    def _ordered(self, gold: Sequence[str], said: Sequence[str], depth: int) -> bool | None:
        if len(gold) != len(said):
            return False
        return _all([self.equal(one, other, depth + 1) for one, other in zip(gold, said, strict=True)])

    def _unordered(self, gold: Sequence[str], said: Sequence[str], depth: int) -> bool | None:
        if len(gold) != len(said):
            return False
        if len(gold) > MAX_ITEMS:
            return self._ordered(gold, said, depth)
        left, right = _cancelled(gold, said)
        if len(left) * len(right) > MAX_ITEMS:
            return False
        table = [[self.equal(one, other, depth + 1) for other in right] for one in left]
        if any(all(cell is False for cell in row) for row in table):
            return False
        if any(cell is None for row in table for cell in row):
            return None
        taken: set[int] = set()
        for row in table:
            free = [index for index, same in enumerate(row) if same and index not in taken]
            if not free:
                return False
            taken.add(free[0])
        return True

    def _expressions(self, gold: str, said: str, depth: int) -> bool | None:
        if ("=" in gold) != ("=" in said) or r"\approx" in said or r"\in" in said:
            stripped_gold, stripped_said = right_side(gold), right_side(said)
            if (stripped_gold, stripped_said) != (gold, said) and depth < 6:
                return self.equal(stripped_gold, stripped_said, depth + 1)
        gold_number = parse_quantity(gold)
        if gold_number is not None and (
            gold_number.base is not None or (_ARITHMETIC.match(said) and not _POWER.fullmatch(said))
        ):
            return False  # an unevaluated sum or product repeats the question, it does not answer it
        said_number = parse_quantity(said)
        if said_number is not None and said_number.base is not None:
            return False
        if max(len(gold), len(said)) > MAX_EXPRESSION or words(said) is not None or not _well_formed(said):
            return False
        pair = (canonical(gold, keep_spaces=True), canonical(said, keep_spaces=True))
        if pair not in self.known:
            self.needed.add(pair)
            return None
        return self.known[pair]


_ODD = re.compile(r"[\"`#$%&@~?;\x00-\x08]|<[a-z/|]|\\boxed|\\text\s*\{\s*\}")


def _well_formed(expression: str) -> bool:
    """Whether an expression has paired braces and no character that mathematics has no use for."""
    plain = expression.replace(r"\{", "").replace(r"\}", "").replace(r"\%", "")
    depth = lowest = 0
    for character in plain:
        depth += (character == "{") - (character == "}")
        lowest = min(lowest, depth)
    dangling = re.match(r"\s*[*/^_=]", plain) or re.search(r"[-+*/^_=]\s*\Z", plain)
    return depth == 0 and lowest == 0 and not _ODD.search(plain) and not dangling


@dataclass(frozen=True)
class Shape:
    """The outermost structure of an answer."""

    kind: Literal["atom", "list", "set", "tuple", "union"]
    items: tuple[str, ...]
    brackets: str = ""


def shape(text: str) -> Shape:
    """What an answer is: one thing, a bare list, a set, a tuple or interval, or a union."""
    text = _without_membership(text.strip())
    parts = split_top(text, r"\cup")
    if len(parts) > 1:
        return Shape("union", tuple(parts))
    if r"\pm" in text and text.count(r"\pm") == 1:
        return Shape("list", (text.replace(r"\pm", "+"), text.replace(r"\pm", "-")))
    inner = _enclosed(text, r"\{", r"\}")
    if inner is not None:
        return Shape("set", tuple(split_top(inner, ",")))
    if inner := _enclosed(text, "{", "}"):
        return shape(inner) if not inner.startswith("{") else Shape("atom", (text,))
    for left in "([":
        for right in ")]":
            inner = _enclosed(text, left, right)
            if inner is not None and len(items := split_top(inner, ",")) > 1:
                return Shape("tuple", tuple(items), left + right)
    listed = re.sub(r",?\s+(?:and|or)\s+|,?\s*\\text\{\s*(?:and|or)\s*\}\s*", ",", text)
    items = split_top(listed, ",")
    if len(items) > 1 and parse_quantity(text) is None:
        return Shape("list", tuple(items))
    return Shape("atom", (text,))


def split_top(text: str, separator: str) -> list[str]:
    """The text cut at separators that are inside no bracket."""
    parts: list[str] = []
    depth = 0
    begin = index = 0
    while index < len(text):
        if depth == 0 and text.startswith(separator, index):
            parts.append(text[begin:index].strip())
            index += len(separator)
            begin = index
            continue
        if text[index] in "([{":
            depth += 1
        elif text[index] in ")]}":
            depth = max(0, depth - 1)
        index += 1
    parts.append(text[begin:].strip())
    return parts if all(parts) else [text]


def _enclosed(text: str, left: str, right: str) -> str | None:
    """The inside, when one bracket pair (of any kinds, for half-open intervals) encloses the whole text."""
    if not (text.startswith(left) and text.endswith(right)) or len(text) < len(left) + len(right):
        return None
    depth = 0
    for index, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0 and index < len(text) - 1:
                return None
    return text[len(left) : len(text) - len(right)].strip() if depth == 0 else None


def _without_membership(text: str) -> str:
    match = re.match(r"[A-Za-z]\s*\\in(?![a-z])\s*", text)
    return text[match.end() :] if match else text


def right_side(text: str) -> str:
    """What an equation or "x in ..." says the unknown is; the text itself when its left side is not a plain name."""
    match = _LEFT_SIDE.match(text)
    if match and "=" not in text[match.end() :]:
        return text[match.end() :].strip()
    sides = text.split("=")
    if len(sides) > 1 and parse_quantity(sides[-1]) is not None and _ARITHMETIC.match(sides[0].strip() or "x"):
        return sides[-1].strip()  # 9 * 2 = 18
    return text


def canonical(text: str, keep_spaces: bool = False) -> str:
    """One spelling of an expression, for comparing letter by letter and for asking algebra once per expression."""
    text = without_text_commands(text)
    text = re.sub(r"(?<!\\)\\(?:(?:left|right|displaystyle|limits)(?![a-zA-Z])|[!,;: ])", " ", text)
    text = re.sub(r"(?<=[\^_])\{([A-Za-z0-9])\}", r"\1", text)
    text = re.sub(r"(?<![\d.])(\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![\d.])", r"\1 \\times 10^{\2}", text)
    text = re.sub(r"(?<![A-Za-z\\])np\.(?=[a-z])", "", text).replace("**", "^")
    text = re.sub(r"(?<![A-Za-z\\])pi(?![A-Za-z])", r"\\pi ", text)
    if keep_spaces:
        return " ".join(text.split())
    return "".join(text.split()).replace(r"\cdot", "").replace("*", "")


_NO_SOLUTION = frozenset(["no solutions", "no real solution", "no real solutions", "empty set", "the empty set"])
_SYMBOLS = re.compile(r"[A-Za-z]|[b-df-hj-np-tv-xzB-DF-HJ-NP-TV-XZ]{2,4}|(?=[A-Za-z]{2,5}\Z)[a-z]+[A-Z][A-Za-z]*")
"""Letters that are a product of symbols and no word: case matters in them ("R", "mgR", "kT")."""


def words(text: str) -> str | None:
    """The text as lower-case words, or None when it is not made of words only ("even", "no solution", "True")."""
    if text.strip("() {}") in (r"\emptyset", r"\varnothing", r"\{\}", r"\{ \}"):
        return "no solution"
    plain = without_text_commands(text).strip().strip("().{}").strip()
    if not plain or not re.fullmatch(r"[A-Za-z][A-Za-z\s'’-]*", plain) or _SYMBOLS.fullmatch(plain):
        return None
    folded = " ".join(plain.casefold().split())
    return "no solution" if folded in _NO_SOLUTION else folded


def choice_letter(text: str, any_case: bool = False) -> str | None:
    """The letter of a multiple-choice answer written "B", "(B)", "B." or "B) some text", or None."""
    plain = _CHOICE_WORDS.sub("", without_text_commands(text).strip().strip("$ "))
    match = _CHOICE.fullmatch(plain)
    if match is None or (match[2] and (_OTHER_CHOICE.search(match[2]) or is_negated(match[2]))):
        return None
    return match[1].upper() if any_case or match[1].isupper() else None


def _cancelled(gold: Sequence[str], said: Sequence[str]) -> tuple[list[str], list[str]]:
    """Both lists without the items that occur letter by letter in both."""
    right = list(said)
    spelled = [canonical(item) for item in right]
    left = []
    for item in gold:
        key = canonical(item)
        if key in spelled:
            index = spelled.index(key)
            del spelled[index], right[index]
        else:
            left.append(item)
    return left, right


def _all(results: Sequence[bool | None]) -> bool | None:
    if any(result is False for result in results):
        return False
    return None if any(result is None for result in results) else True
