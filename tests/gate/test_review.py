"""Reading samples in a plain terminal: every key does what it says, every verdict is saved before the next screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rl.gate import Sample, write_samples
from spark_rl.gate.display import cells
from spark_rl.gate.inspection import Inspection, read_inspection
from spark_rl.gate.opinions import Opinion, read_opinions, write_opinions
from spark_rl.gate.review import HELP, MIN_HEIGHT, MIN_WIDTH, Session, View, first_open, review, screen
from spark_rl.gate.samples import review_order
from spark_rl.rewards.base import Verdict
from spark_rl.rundir import RunDir

from .conftest import Bench


class Script:
    """A terminal that types prepared keys and lines, and keeps what was drawn."""

    encoding = "utf-8"

    def __init__(self, keys: Sequence[str], lines: Sequence[str | None] = (), size: tuple[int, int] = (80, 24)) -> None:
        self.keys, self.lines, self.dimensions = list(keys), list(lines), size
        self.screens: list[list[str]] = []
        self.questions: list[str] = []

    def size(self) -> tuple[int, int]:
        return self.dimensions

    def draw(self, lines: Sequence[str]) -> None:
        self.screens.append(list(lines))

    def key(self) -> str:
        return self.keys.pop(0) if self.keys else ""

    def line(self, question: str) -> str | None:
        self.questions.append(question)
        return self.lines.pop(0) if self.lines else None

    @property
    def last(self) -> str:
        return "\n".join(self.screens[-1])


def read(run: RunDir, keys: Sequence[str], lines: Sequence[str | None] = (), reader: str = "anna") -> Script:
    terminal = Script(keys, lines)
    review(read_inspection(run), reader, terminal, lambda opinion: write_opinions(run, [opinion]))
    return terminal


def order_of(run: RunDir) -> list[Sample]:
    inspection = read_inspection(run)
    assert inspection.drawn
    return review_order(inspection.samples, inspection.drawn.seed)


def said(run: RunDir) -> list[tuple[str, str, str]]:
    return [(one.sample_id, one.says, one.note) for one in read_opinions(run)]


def test_reading_every_sample_ends_with_how_to_sign(bench: Bench) -> None:
    run = bench.sampled_run()
    terminal = read(run, ["x", *"a" * 50])
    assert "Every sample is read. To sign: spark-rl inspect sign" in " ".join(terminal.last.split())
    assert bench.sign(run).counts["agree"] == 50


def test_a_verdict_is_on_disk_before_the_next_screen(bench: Bench) -> None:
    run = bench.sampled_run()

    class Watching(Script):
        def draw(self, lines: Sequence[str]) -> None:
            counted.append(len(read_opinions(run)))

    counted: list[int] = []
    review(read_inspection(run), "anna", Watching(["x", "a", "a", "u"]), lambda opinion: write_opinions(run, [opinion]))
    assert counted == [0, 0, 1, 2, 3]


def test_the_next_reading_begins_at_the_first_open_sample(bench: Bench) -> None:
    run = bench.sampled_run()
    read(run, ["x", "a", "u", "q"])
    assert order_of(run)[2].id in read(run, ["x"]).screens[1][2]


def test_a_disagreement_is_saved_first_and_then_asked_for_its_reason(bench: Bench) -> None:
    run = bench.sampled_run()
    terminal = read(run, ["x", "d"], ["should be 1"])
    name = order_of(run)[0].id
    assert said(run) == [(name, "disagree", ""), (name, "disagree", "should be 1")]
    assert len(terminal.questions) == 1


def test_a_disagreement_needs_no_reason(bench: Bench) -> None:
    run = bench.sampled_run()
    read(run, ["x", "d"], [""])
    assert [says for _, says, _ in said(run)] == ["disagree"]


def test_after_the_last_sample_an_open_disagreement_names_the_way_on(bench: Bench) -> None:
    run = bench.sampled_run()
    terminal = read(run, ["x", "d", *"a" * 49], ["why"])
    assert "Mend the reward, then: spark-rl inspect rescore" in " ".join(terminal.last.split())


def test_back_and_another_verdict_replaces_the_first(bench: Bench) -> None:
    run = bench.sampled_run()
    read(run, ["x", "a", "b", "u"])
    assert [says for _, says, _ in said(run)] == ["agree", "unsure"]
    assert read_inspection(run).counts()["unsure"] == 1


def test_taking_a_disagreement_back_needs_a_reason(bench: Bench) -> None:
    run = bench.sampled_run()
    name = order_of(run)[0].id
    terminal = read(run, ["x", "d", "b", "a", "q"], ["", ""])
    assert "to take it back, note why" in " ".join(terminal.last.split())
    assert read_inspection(run).disputed == [name]
    read(run, ["x", "b", "a"], ["misread it"])
    assert read_inspection(run).disputed == []
    assert read_inspection(run).counts()["withdrawn"] == 1


def test_a_note_goes_with_the_verdict_that_is_there(bench: Bench) -> None:
    run = bench.sampled_run()
    read(run, ["x", "u", "b", "n"], ["what is asked?"])
    assert said(run)[-1][1:] == ("unsure", "what is asked?")


def test_a_note_without_a_verdict_says_what_to_do_first(bench: Bench) -> None:
    run = bench.sampled_run()
    assert "first a, d or u, then a note" in read(run, ["x", "n"]).last
    assert said(run) == []


@pytest.mark.parametrize("lines", [[None], [""], ["  "]])
def test_a_note_that_is_given_up_changes_nothing(bench: Bench, lines: list[str | None]) -> None:
    run = bench.sampled_run()
    read(run, ["x", "u", "b", "n"], lines)
    assert len(said(run)) == 1


def test_the_first_page_takes_no_verdict(bench: Bench) -> None:
    run = bench.sampled_run()
    read(run, ["a"])
    assert said(run) == []


@pytest.mark.parametrize("key", ["x", "A", "1", "\x1b", "up", "ü"])
def test_other_keys_are_no_verdict(bench: Bench, key: str) -> None:
    run = bench.sampled_run()
    terminal = read(run, ["x", key])
    assert said(run) == []
    assert order_of(run)[0].id in terminal.last


def test_help_lists_every_key_and_returns_to_the_same_sample(bench: Bench) -> None:
    run = bench.sampled_run()
    terminal = read(run, ["x", "f", "?", "x"])
    assert HELP[2] in "\n".join(terminal.screens[-2])
    assert order_of(run)[1].id in terminal.last


def test_leaving_counts_what_was_saved_now(bench: Bench) -> None:
    run = bench.sampled_run()
    inspection = read_inspection(run)
    assert review(inspection, "anna", Script(["x", "a", "a", "u", "q"]), lambda opinion: None) == {
        "agree": 2,
        "unsure": 1,
    }


def test_what_stands_out_is_on_the_first_page_and_counted_on_the_others(bench: Bench) -> None:
    bench.rewrite("task.toml", lambda text: text.replace("<\\d+>", "<x>"))
    terminal = read(bench.sampled_run(), ["x"])
    assert "! 0 of 50 samples ever score on format" in " ".join(" ".join(terminal.screens[0]).split())
    assert "1 alarm (?)" in terminal.screens[1][0]


def page(sample: Sample, width: int = 80, height: int = 24, scroll: int = 0, encoding: str = "utf-8") -> list[str]:
    inspection = Inspection(RunDir(Path("run")), (sample,), None, None, ())
    session = Session(inspection, (sample,), (), "anna")
    return screen(session, View("sample", 0, scroll), {}, width, height, encoding)


PLAIN = Sample(
    "s001", "2 + 2 =", "4", 1, False, 1.2, True, {"format": Verdict(0.2, "ok")}, {"question": "2 + 2 =", "gold": "4"}
)


def test_a_sample_shows_scores_reasons_prompt_completion_and_the_data_beside_the_prompt() -> None:
    assert page(PLAIN)[2:-3] == [
        "s001  total 1.2  correct yes  1 tokens",
        "  format: 0.2  ok",
        "prompt",
        "| 2 + 2 =",
        "completion",
        "| 4",
        "data",
        "| gold: 4",
    ]


def test_a_short_answer_is_shown_though_the_prompt_happens_to_hold_it() -> None:
    assert "| gold: 4" in page(replace(PLAIN, prompt="Which is larger, 4 or 3?"))


def test_a_column_that_the_prompt_was_made_from_is_not_shown_twice() -> None:
    question = "A farmer has four sheep and buys two more."
    sample = replace(PLAIN, prompt=f"Answer briefly. {question}", row={"question": question, "gold": "6"})
    assert [line for line in page(sample) if "farmer" in line] == [f"| Answer briefly. {question}"]


def test_unknown_is_not_zero() -> None:
    sample = replace(PLAIN, total=None, correct=None, parts={"format": Verdict(None, "does not apply")})
    assert page(sample)[2:4] == ["s001  total N/A  correct N/A  1 tokens", "  format: N/A  does not apply"]


def test_a_failed_reward_and_a_cut_off_text_are_said_in_words() -> None:
    sample = replace(PLAIN, truncated=True, parts={"format": Verdict(None, "raised KeyError", is_bug=True)})
    assert "CUT OFF" in page(sample)[2]
    assert "format: FAILED  raised KeyError" in page(sample)[3]


def test_a_long_completion_is_scrolled_to_its_end() -> None:
    sample = replace(PLAIN, completion="\n".join(f"line {number}" for number in range(100)))
    assert "| line 99" not in page(sample)
    assert "| line 99" in page(sample, scroll=1000)
    assert "space shows more" in page(sample)[-3]


def test_space_moves_by_a_screen(bench: Bench) -> None:
    run = bench.new_run()
    samples = [replace(one, completion="\n".join(map(str, range(60)))) for one in bench.samples()]
    write_samples(run, samples, bench.fingerprint())
    terminal = read(run, ["x", " ", "pageup", "down"])
    assert len({screen[-3] for screen in terminal.screens[1:]}) == 3


@given(
    text=st.text(st.characters(codec=None), max_size=400),
    width=st.integers(20, 130),
    height=st.integers(5, 50),
    scroll=st.integers(0, 50),
    encoding=st.sampled_from(["ascii", "latin-1", "utf-8"]),
)
def test_whatever_a_sample_holds_the_screen_fits_and_is_harmless(
    text: str, width: int, height: int, scroll: int, encoding: str
) -> None:
    sample = replace(PLAIN, prompt=text, completion=text, parts={"a part": Verdict(1.0, text)}, row={"gold": text})
    lines = page(sample, width, height, scroll, encoding)
    assert len(lines) <= height
    for line in lines:
        assert cells(line) <= width
        assert line.isprintable()
        line.encode(encoding)


def test_only_the_bar_begins_a_line_of_foreign_text() -> None:
    forged = "s001  total 1.2  correct yes"
    sample = replace(PLAIN, completion=f"\n{forged}", parts={"format": Verdict(0.0, f"{'x' * 64} {forged}")})
    assert [line for line in page(replace(sample, total=0.0, correct=False)) if line.startswith("s001")] == [
        "s001  total 0  correct no  1 tokens"
    ]


@pytest.mark.parametrize(("width", "height"), [(MIN_WIDTH - 1, 30), (80, MIN_HEIGHT - 1)])
def test_a_terminal_that_is_too_small_says_so_and_leaves_on_q(bench: Bench, width: int, height: int) -> None:
    run = bench.sampled_run()
    terminal = Script(["x", "a", "q"], size=(width, height))
    assert review(read_inspection(run), "anna", terminal, lambda opinion: None) == {}
    assert terminal.screens == [["Needs 40x12,", f"have {width}x{height}; q leaves"]] * 3


@given(answered=st.sets(st.integers(0, 9)), start=st.integers(0, 10))
def test_the_next_open_sample_is_found_from_any_place(answered: set[int], start: int) -> None:
    order = [replace(PLAIN, id=str(number)) for number in range(10)]
    opinions = {str(number): Opinion(str(number), "agree", "", "anna", "person") for number in answered}
    found = first_open(order, opinions, start)
    still_open = [number for number in range(10) if number not in answered]
    assert (found is None) == (not still_open)
    if found is not None:
        assert found in still_open
        assert not [number for number in still_open if start <= number < found]
