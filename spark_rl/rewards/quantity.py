"""Numbers as people and models write them: the fast path of the math reward, without any algebra package.

In:  a short text: "$1,800", "50\\%", "3\\frac{1}{2}", "1.07 \\times 10^{16}", "18 duck eggs", "-3/4", "4210_{5}".
Out: an exact `Quantity`, or None when the text is not one number with at most a unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_EXPONENT = 400
"""Powers of ten beyond this are left to the symbolic path: exact fractions of them would be slow."""
MAX_DIGITS = 400

_SPACING = re.compile(
    r"(?<!\\)\\(?:[,;: ]|(?:quad|qquad|displaystyle|textstyle|left|right|big|Big|bigg|Bigg)(?![a-zA-Z]))|~"
)
_THIN = re.compile(r"(?<!\\)\\!")
_TEXT = re.compile(
    r"\\(?:text|textrm|textbf|textit|textsf|mathrm|mathbf|mathit|mathsf|mbox|operatorname)\s*\{([^{}]*)\}"
)
_FRACTIONS = {
    "½": r"\frac{1}{2}",
    "⅓": r"\frac{1}{3}",
    "⅔": r"\frac{2}{3}",
    "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}",
    "⅕": r"\frac{1}{5}",
    "⅛": r"\frac{1}{8}",
}
_CHARACTERS = str.maketrans(
    {
        "−": "-",
        "–": "-",
        "﹣": "-",
        "×": r"\times ",
        "·": r"\cdot ",
        "⋅": r"\cdot ",
        "÷": "/",
        "√": r"\sqrt ",
        "π": r"\pi ",
    }
    | {
        "∞": r"\infty ",
        "°": r"^\circ",
        "\u00a0": " ",
        "\u202f": " ",
        "，": ",",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "²": "^2",
    }
    | {"³": "^3", "≤": r"\le ", "≥": r"\ge ", "％": "%", "＄": "$", "±": r"\pm "}
    | _FRACTIONS
)
_GROUPED = r"\d{1,3}(?:(?:,|\{,\})\d{3})+(?:\.\d+)?(?!\d)"
_PLAIN = rf"(?:{_GROUPED}|\d+(?:\.\d*)?|\.\d+)"
_TIMES_TEN = r"(?:\\times|\\cdot|\*|x)\s*10\s*(?:\^|\*\*)\s*(?:\{\s*([+-]?\s*\d{1,6})\s*\}|\(\s*([+-]?\d{1,6})\s*\)|([+-]?\d{1,6}))"
_LATEX_FRACTION = rf"\\[dtc]?frac\s*(?:\{{\s*([+-]?\s*{_PLAIN})\s*\}}|(\d))\s*(?:\{{\s*({_PLAIN})\s*\}}|(\d))"
_NUMBER = re.compile(
    rf"""
    (?P<currency>US\$|[$€£¥₹]|\\\$|USD\s|Rs\.?\s)?\s*
    (?P<sign>[+-])?\s*
    (?P<currency2>US\$|[$€£¥₹]|\\\$)?\s*
    (?:
        (?P<ten>10)\s*\^\s*(?:\{{\s*(?P<ten_a>[+-]?\s*\d{{1,6}})\s*\}}|(?P<ten_b>[+-]?\d))
      | (?P<whole>\d{{1,9}}(?=\s*\\[dtc]?frac)|\d{{1,9}}(?=\s+\d{{1,9}}\s*/\s*\d))?\s*
        (?:(?P<fraction>{_LATEX_FRACTION})
          |(?P<over>{_PLAIN})\s*/\s*(?P<under>{_PLAIN})
          |(?P<plain>{_PLAIN})(?:[eE](?P<e>[+-]?\d{{1,6}})(?![\d.])|\s*(?P<times>{_TIMES_TEN}))?
        )
    )
    (?:_\{{?(?P<base>\d{{1,2}})\}}?)?
    """,
    re.VERBOSE,
)
_INTEGER = re.compile(r"-?\d{1,18}\Z")
_CURRENCIES = {"US$": "dollar", "$": "dollar", r"\$": "dollar", "USD": "dollar", "€": "euro", "£": "pound sterling"}
_CURRENCIES |= {"¥": "yen", "₹": "rupee", "Rs": "rupee", "Rs.": "rupee"}

UNITS: dict[str, tuple[str, Fraction]] = {}
"""Unit names that can be converted: (what is measured, size in its base unit)."""


def _units(measured: str, sizes: dict[str, str]) -> None:
    for names, size in sizes.items():
        for name in names.split():
            UNITS[name] = (measured, Fraction(size))


_units("length", {"m meter metre": "1", "km kilometer kilometre": "1000", "cm centimeter centimetre": "1/100"})
_units("length", {"mm millimeter millimetre": "1/1000", "in inch inches": "0.0254", "ft foot feet": "0.3048"})
_units("length", {"yd yard": "0.9144", "mi mile": "1609.344"})
_units(
    "mass",
    {
        "g gram": "1",
        "kg kilogram": "1000",
        "mg milligram": "1/1000",
        "lb lbs pound": "453.59237",
        "oz ounce": "28.349523125",
    },
)
_units(
    "time",
    {
        "s sec second": "1",
        "min minute": "60",
        "h hr hour": "3600",
        "day": "86400",
        "week": "604800",
        "ms millisecond": "1/1000",
    },
)
_units("money", {"dollar usd": "1", "cent": "1/100"})
_units("volume", {"l liter litre": "1", "ml milliliter millilitre": "1/1000"})

_UNIT_TAIL = re.compile(r"[A-Za-z](?:[A-Za-z.'’, ()/-]|\^ ?(?:-?[123]|\{-?[123]\})|\\cdot )*\Z")
_NOT_UNITS = frozenset(
    (
        *("and", "or", "to", "not", "never", "no", "nor", "wrong", "incorrect", "false", "between", "but", "except"),
        *("pi", "i", "e", "x", "y", "z", "n", "k", "t", "b", "c", "sqrt", "sin", "cos", "tan", "log", "ln", "exp"),
        *("theta", "alpha", "beta", "plus", "minus", "over", "mod", "than"),
    )
)
_COMPARISONS = frozenset(
    ["more", "less", "fewer", "greater", "larger", "smaller", "higher", "lower", "rather", "other"]
)


_ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_ONES += ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
NUMBER_WORDS = {word: number for number, word in enumerate(_ONES)}
NUMBER_WORDS |= {word: 10 * number for number, word in enumerate(_TENS, start=2)}
NUMBER_WORDS |= {
    f"{ten}-{_ONES[one]}": 10 * number + one for number, ten in enumerate(_TENS, start=2) for one in range(1, 10)
}
_RECURRING = re.compile(r"(-?)(\d{0,12})\.(\d{0,12})\\overline\s*\{?(\d{1,12})\}?")


@dataclass(frozen=True)
class Quantity:
    """One exact number as written."""

    value: Fraction
    is_decimal: bool = False
    """Written with a decimal point or as a power of ten: may be a rounded number."""
    num_digits: int = 0
    """Significant digits as written; counts only for decimals."""
    percent: bool = False
    unit: str | None = None
    """Unit or noun after the number, singular and lower case."""
    is_quotient: bool = False
    """Written as one number over another."""
    base: int | None = None
    """Number base written as a subscript; numbers in different bases are never compared by their digits."""


def tidy(text: str) -> str:
    """The text with one spelling for everything that is only typography; same meaning, LaTeX kept."""
    text = text.translate(_CHARACTERS).strip()
    if "\\" in text or "~" in text:
        text = _SPACING.sub(" ", _THIN.sub("", text))
        text = re.sub(r"\\[dtc]frac(?![a-z])", r"\\frac", text)
        text = re.sub(r"(?<=\d)\s+(?=\d{3}(?!\d))", "", text) if re.fullmatch(r"[\d\s.]+", text) else text
    return _stripped(text)


_WRAPPERS = (
    ("$$", "$$"),
    ("$", "$"),
    (r"\(", r"\)"),
    (r"\[", r"\]"),
    ("**", "**"),
    ("`", "`"),
    ("__", "__"),
    ('"', '"'),
    ("'", "'"),
)


def _stripped(text: str) -> str:
    """Without outer spaces, a final stop, and wrappers such as $...$ or **...**."""
    for _ in range(6):
        before = text
        text = text.strip().rstrip(".!;,:").strip() if not text.endswith(r"\!") else text.strip()
        for left, right in _WRAPPERS:
            inner = text[len(left) : len(text) - len(right)]
            if (
                len(text) > len(left) + len(right)
                and text.startswith(left)
                and text.endswith(right)
                and left not in inner
            ):
                text = inner
        if text == before:
            break
    return text


def without_text_commands(text: str) -> str:
    """`\\text{ dollars}` as plain words."""
    for _ in range(4):
        replaced = _TEXT.sub(r" \1 ", text)
        if replaced == text:
            break
        text = replaced
    return text


def parse_quantity(text: str) -> Quantity | None:
    """One number with at most a unit, exactly; None for anything else."""
    text = tidy(text)
    if _INTEGER.match(text):
        return Quantity(Fraction(int(text)))
    if not text or len(text) > 2 * MAX_DIGITS:
        return None
    if not any(character.isdigit() for character in text):
        spelled = NUMBER_WORDS.get(text.casefold())
        return None if spelled is None else Quantity(Fraction(spelled))
    if recurring := _RECURRING.fullmatch(text):
        return Quantity(_recurring(recurring))
    if "\\" in text:
        text = without_text_commands(text).strip()
    if text.startswith("{") and text.endswith("}") and text.count("{") == 1:
        text = text[1:-1].strip()
    match = _NUMBER.match(text)
    if match is None:
        return None
    number = _value(match)
    if number is None:
        return None
    value, is_decimal, num_digits = number
    tail = text[match.end() :]
    percent, unit = _tail(tail)
    if unit is None:
        return None
    currency = match["currency"] or match["currency2"]
    base = int(match["base"]) if match["base"] else None
    if base is not None:
        if unit or percent or currency or match["plain"] is None:
            return None
        return _in_base(match["plain"], match["sign"], base)
    return Quantity(
        value=-value if match["sign"] == "-" else value,
        is_decimal=is_decimal,
        num_digits=num_digits,
        percent=percent,
        unit=unit or (_currency(currency) if currency else None),
        is_quotient=bool(match["fraction"] or match["over"]),
    )


def _currency(symbol: str) -> str | None:
    return _CURRENCIES.get(symbol.strip())


def _in_base(digits: str, sign: str | None, base: int) -> Quantity | None:
    try:
        value = int(digits, base) if 2 <= base <= 36 else None
    except ValueError:
        return None
    return None if value is None else Quantity(Fraction(-value if sign == "-" else value), base=base)


def _value(match: re.Match[str]) -> tuple[Fraction, bool, int] | None:
    """The unsigned value, whether it is a decimal, and its digits."""
    if match["ten"]:
        exponent = int((match["ten_a"] or match["ten_b"]).replace(" ", ""))
        return None if abs(exponent) > MAX_EXPONENT else (Fraction(10) ** exponent, False, 1)
    if match["fraction"]:
        upper, lower = _fraction_terms(match["fraction"])
    elif match["over"]:
        upper, lower = _decimal(match["over"]), _decimal(match["under"])
    else:
        return _scaled(match)
    if lower == 0:
        return None
    whole = Fraction(int(match["whole"])) if match["whole"] else Fraction(0)
    if whole and upper < 0:
        return None
    return whole + upper / lower, False, 0


_TERMS = re.compile(_LATEX_FRACTION)


def _fraction_terms(text: str) -> tuple[Fraction, Fraction]:
    found = _TERMS.match(text)
    assert found is not None
    upper, lower = found[1] or found[2], found[3] or found[4]
    upper = upper.replace(" ", "")
    sign = -1 if upper.startswith("-") else 1
    return sign * _decimal(upper.lstrip("+-")), _decimal(lower)


def _scaled(match: re.Match[str]) -> tuple[Fraction, bool, int] | None:
    plain = match["plain"]
    value = _decimal(plain)
    exponent_text = match["e"]
    if match["times"]:
        exponent_text = next(group for group in re.match(_TIMES_TEN, match["times"]).groups() if group)  # type: ignore[union-attr]
    digits = len(plain.replace(",", "").replace(".", "").lstrip("0"))
    if not exponent_text:
        return value, "." in plain.rstrip("."), digits
    exponent = int(exponent_text.replace(" ", ""))
    if abs(exponent) > MAX_EXPONENT:
        return None
    return value * Fraction(10) ** exponent, True, digits


def _recurring(match: re.Match[str]) -> Fraction:
    """0.1\\overline{6} is 1/6."""
    sign, whole, fixed, period = match.groups()
    value = Fraction(int(whole + fixed or "0"), 10 ** len(fixed))
    value += Fraction(int(period), 10 ** len(fixed) * (10 ** len(period) - 1))
    return -value if sign else value


def _decimal(text: str) -> Fraction:
    return Fraction(text.replace("{,}", "").replace(",", "").rstrip(".") or "0")


def _tail(tail: str) -> tuple[bool, str | None]:
    """(percent, unit); unit is "" for no unit and None when the tail is no unit at all."""
    stripped = tail.strip()
    if not stripped:
        return False, ""
    percent = re.match(r"\\?%|percent\b|per cent\b", stripped)
    if percent:
        return True, _unit(" " + stripped[percent.end() :])
    degree = re.match(r"\^?\{?\s*\\circ\s*\}?|degrees?\b", stripped)
    if degree:
        rest = stripped[degree.end() :].strip()
        return False, ("degree " + rest).strip().lower() if rest in ("", "C", "F") else None
    return False, _unit(tail)


def _unit(tail: str) -> str | None:
    """A unit or noun phrase, singular and lower case; "" for none; None when it is something else."""
    words = " ".join(tail.split())
    if not words:
        return ""
    if len(words) > 80 or not _UNIT_TAIL.match(words):
        return None
    lowered = [word.strip(".,()") for word in words.lower().replace("/", " / ").split()]
    forbidden = _NOT_UNITS - {"than"} if _COMPARISONS & set(lowered) else _NOT_UNITS
    if any(word in forbidden or word.endswith("n't") for word in lowered):
        return None
    if lowered[0] == "a" or (not tail[0].isspace() and singular(lowered[0].split("^")[0]) not in UNITS):
        return None
    if len(lowered[0]) == 1 and lowered[0] not in UNITS:
        return None
    return " ".join(singular(word) for word in lowered if word)


def singular(word: str) -> str:
    """A unit's singular, roughly: enough to compare two spellings of one unit."""
    if word in UNITS or len(word) < 4:
        return word
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def equal_quantities(
    gold: Quantity, said: Quantity, relative_tolerance: float = 0.0, any_percent: bool = False
) -> bool:
    """Whether two numbers are the same answer.

    A percent sign on either side makes both readings count (50 % is 50 and is .5). Units decide only when both are known
    and measure the same thing. Decimals agree when they agree to the fewer of their digits, and at least to six.
    """
    if gold.base != said.base:
        return False
    if said.is_quotient and not gold.is_quotient and gold.value.denominator == said.value.denominator == 1:
        return False  # 84/7 is a division to be done and not the answer 12
    pairs = [(gold.value, said.value)]
    if gold.percent != said.percent or any_percent:
        pairs += [(gold.value, said.value / 100), (gold.value / 100, said.value)]
    known = UNITS.get(gold.unit or ""), UNITS.get(said.unit or "")
    if known[0] and known[1] and known[0] != known[1]:
        if known[0][0] != known[1][0]:
            return False
        pairs = [(gold.value * known[0][1], said.value * known[1][1])]
    may_be_rounded = (gold.is_decimal and gold.num_digits >= 6) or (said.is_decimal and said.num_digits >= 6)
    return any(_same(one, other, gold, said, relative_tolerance, may_be_rounded) for one, other in pairs)


def _same(
    one: Fraction, other: Fraction, gold: Quantity, said: Quantity, tolerance: float, may_be_rounded: bool
) -> bool:
    if one == other:
        return True
    size = max(abs(one), abs(other))
    if tolerance and abs(one - other) <= Fraction(tolerance) * size:
        return True
    if not may_be_rounded or (gold.is_decimal and said.is_decimal and min(gold.num_digits, said.num_digits) < 6):
        return False
    digits = min(quantity.num_digits for quantity in (gold, said) if quantity.is_decimal)
    return abs(one - other) <= size * Fraction(1, 2) * Fraction(10) ** (1 - min(digits, 15))
