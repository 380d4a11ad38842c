"""Whatever a model writes is shown as harmless text that fits."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rl.gate.display import block, cell_width, cells, one_line, printable, sentence_lines, wrap

any_text = st.text(st.characters(codec=None), max_size=200)
widths = st.integers(10, 120)


@given(text=any_text)
def test_nothing_that_moves_the_cursor_or_hides_gets_through(text: str) -> None:
    for line in block(text, 80):
        assert not [one for one in line if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")]


@given(text=any_text, width=widths)
def test_no_line_is_wider_than_asked(text: str, width: int) -> None:
    assert all(cells(line) <= width for line in block(text, width))
    assert cells(one_line(text, width)) <= width
    assert all(cells(line) <= width for line in sentence_lines(printable(text), width))


@given(text=any_text)
def test_every_line_of_foreign_text_stands_behind_a_bar(text: str) -> None:
    assert all(line.startswith(("| ", ": ")) for line in block(text, 40))


@given(text=any_text, width=widths)
def test_wrapping_loses_nothing(text: str, width: int) -> None:
    assert "".join(wrap(text, width)) == text


@given(text=any_text, encoding=st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"]))
def test_the_terminals_encoding_can_write_it(text: str, encoding: str) -> None:
    printable(text, encoding).encode(encoding)


@given(text=any_text)
def test_showing_what_is_shown_changes_nothing(text: str) -> None:
    assert printable(printable(text)) == printable(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b[Hall good", "\\x1b[2J\\x1b[Hall good"),
        ("\x9b2J", "\\x9b2J"),
        ("right\rwrong", "right\\rwrong"),
        ("a\bb\x7f\x00", "a\\x08b\\x7f\\x00"),
        ("\u202egnorw", "\\u202egnorw"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("a\u2028b", "a\\u2028b"),
        ("a\u00a0b", "a\\xa0b"),
        ("\u3164", "\\u3164"),
        ("\ud800", "\\ud800"),
        ("e\u0301", "e\u0301"),
        ("e" + "\u0301" * 4, "e\u0301\u0301\\u0301\\u0301"),
        ("\u0301e", "\\u0301e"),
        ("größer 你好 3 × 3", "größer 你好 3 × 3"),
    ],
)
def test_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_completion_cannot_imitate_a_score_line() -> None:
    forged = "done\n----\ns013  total 1.2  correct yes  3 tokens"
    assert block(forged, 80) == ["| done", "| ----", "| s013  total 1.2  correct yes  3 tokens"]


def test_a_line_that_goes_on_differs_from_a_new_line() -> None:
    assert block("abcdef\ngh", 5) == ["| abc", ": def", "| gh"]


def test_an_answer_that_differs_by_a_space_looks_different() -> None:
    assert block("[01359] ", 80) == ["| [01359]\\x20"]
    assert block("", 80) == ["| (empty)"]


def test_wide_characters_take_two_cells() -> None:
    assert (cell_width("你"), cell_width("a"), cell_width("\u0301")) == (2, 1, 0)
    assert wrap("你好你", 4) == ["你好", "你"]
