"""The log of verdicts: nothing is lost, a broken line counts as not read, names mean what they say."""

from __future__ import annotations

import errno

import pytest

from spark_rl.errors import ConfigError, RunDirError
from spark_rl.gate.inspection import num_withdrawn, read_inspection
from spark_rl.gate.opinions import Opinion, Says, opinions_file, read_opinions, reader_kind, write_opinions

from .conftest import Bench


def opinion(says: Says = "agree", name: str = "s001", scored: str = "x", note: str = "") -> Opinion:
    return Opinion(name, says, scored, "anna", "person", note)


def test_the_last_word_on_a_sample_counts_and_the_earlier_ones_are_kept(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.say(run, "agree", ["s001"])
    bench.say(run, "unsure", ["s001"])
    assert [one.says for one in read_opinions(run)] == ["agree", "unsure"]
    assert read_inspection(run).opinions["s001"].says == "unsure"


def test_a_torn_verdict_counts_as_not_read_and_the_next_one_is_whole(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.say(run, "agree", ["s001", "s002"])
    path = opinions_file(run)
    path.write_bytes(path.read_bytes()[:-20])
    assert "s002" in read_inspection(run).unread
    bench.say(run, "unsure", ["s003"])
    assert [one.sample_id for one in read_opinions(run)] == ["s001", "s003"]


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"id": "s001", "verdict": "maybe", "scored": "x", "reader": "anna", "kind": "person"}',
        '{"id": "s001", "verdict": "agree", "scored": "x", "reader": "anna", "kind": "king"}',
        '{"id": "s001", "verdict": "agree", "scored": "x", "reader": "", "kind": "person"}',
        '{"id": 7, "verdict": "agree", "scored": "x", "reader": "anna", "kind": "person"}',
    ],
)
def test_a_line_that_is_no_verdict_is_none(bench: Bench, line: str) -> None:
    run = bench.empty_run()
    opinions_file(run).write_text(line + "\n")
    assert read_opinions(run) == ()


def test_verdicts_of_a_newer_version_are_refused_not_ignored(bench: Bench) -> None:
    run = bench.sampled_run()
    opinions_file(run).write_text('{"v": 99}\n')
    with pytest.raises(RunDirError, match="newer spark_rl"):
        read_inspection(run)


def test_a_full_disk_is_told_and_not_taken_for_saved(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = bench.empty_run()
    monkeypatch.setattr("os.write", full)
    with pytest.raises(RunDirError, match="No space left"):
        write_opinions(run, [opinion()])


def test_a_note_in_half_a_surrogate_pair_is_kept_as_far_as_it_can_be(bench: Bench) -> None:
    run = bench.empty_run()
    write_opinions(run, [opinion(note="a\ud83d")])
    assert [one.note for one in read_opinions(run)] == ["a?"]


@pytest.mark.parametrize(
    ("history", "count"),
    [
        ([], 0),
        ([opinion("disagree"), opinion("agree")], 1),
        ([opinion("disagree"), opinion("unsure"), opinion("disagree"), opinion("agree")], 2),
        ([opinion("disagree"), opinion("disagree", note="why")], 0),
        ([opinion("disagree"), opinion("agree", scored="another score")], 0),
        ([opinion("disagree"), opinion("agree", name="s002")], 0),
    ],
)
def test_disagreements_taken_back_are_counted(history: list[Opinion], count: int) -> None:
    assert num_withdrawn(history) == count


@pytest.mark.parametrize(("name", "kind"), [("anna", "person"), ("Zoë B.", "person"), ("scriptwriter", "person"),
                                            ("script", "script"), ("SCRIPT: nightly", "script")])  # fmt: skip
def test_a_name_says_what_a_reader_is(name: str, kind: str) -> None:
    assert reader_kind(name) == kind


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\x1b[2J", "x" * 65, "oracle", "ORACLE 7"])
def test_a_name_that_cannot_stand_in_a_record_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        reader_kind(name)
