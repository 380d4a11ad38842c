"""Algebra for the math reward: whether two LaTeX expressions are equal. Runs only inside a helper process.

In: {"gold", "said"}. Out: true or false. The caller kills this process at the limit, so nothing here keeps time.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import Any

_DECIMAL = re.compile(r"(?<![\d.\w\\])(\d*)\.(\d+)(?![\d.])")
_INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|lt|gt|leq|geq)(?![a-z])")
_SUBSCRIPT = re.compile(r"_\{?\\([A-Za-z]+)\}?")


def prepare(setup: dict[str, Any]) -> None:
    """Import what takes a second, and run it once so that the forked children start warm."""
    import math_verify.parser
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy

    logging.disable(logging.CRITICAL)
    # math-verify lowers all symbols, which makes R equal r; it has no argument for this, so its name is rebound here.
    keep_case = ConversionConfig(lowercase_symbols=False)
    math_verify.parser.latex2sympy = partial(latex2sympy, conversion_config=keep_case)
    handle({"gold": r"\frac{1}{2} + \sqrt{2}", "said": r"\sqrt{2} + 0.5 x"})


def handle(payload: dict[str, str]) -> bool:
    """Whether the two expressions are equal."""
    from math_verify import LatexExtractionConfig, parse, verify

    latex = [LatexExtractionConfig()]  # without it a number somewhere in unreadable text would be taken for the whole
    gold, said = (
        parse(
            rf"\boxed{{{prepared(payload[key])}}}",
            extraction_config=latex,
            fallback_mode="no_fallback",
            parsing_timeout=None,
        )
        for key in ("gold", "said")
    )
    if not gold or not said:
        return False
    if verify(gold, said, timeout_seconds=None):
        return True
    # An inequality is an interval only when it stands on the gold's side.
    return bool(_INEQUALITY.search(payload["said"])) and bool(verify(said, gold, timeout_seconds=None))


def prepared(expression: str) -> str:
    """The expression with exact fractions for decimals and plain names for decorated symbols."""
    expression = _SUBSCRIPT.sub(r"_{\1}", expression)
    return _DECIMAL.sub(lambda found: rf"\frac{{{int(found[1] + found[2])}}}{{{10 ** len(found[2])}}}", expression)
