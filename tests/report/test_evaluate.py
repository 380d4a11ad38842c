"""Before and after are compared on the same prompts, with an exact test and honest intervals."""

from __future__ import annotations

import pytest

from spark_rl.errors import RunDirError
from spark_rl.evaluate import compare, evaluation_from_saved

BEFORE = [True] * 80 + [False] * 120
AFTER = [True] * 75 + [False] * 5 + [True] * 100 + [False] * 20


def test_counts_and_p_value_are_what_the_command_prints() -> None:
    saved = compare(BEFORE, AFTER).to_json()
    assert {key: saved["before"][key] for key in ("successes", "n")} == {"successes": 80, "n": 200}
    assert {key: saved["after"][key] for key in ("successes", "n")} == {"successes": 175, "n": 200}
    assert saved["p_value"] < 1e-20
    assert (saved["gained"], saved["lost"]) == (100, 5)


def test_the_interval_of_a_change_that_is_none_includes_zero() -> None:
    result = compare([True, False] * 100, [False, True] * 100)
    assert result.paired is not None
    assert 0.0 in result.paired.interval
    assert result.paired.p_value == 1.0


def test_before_alone_has_no_p_value() -> None:
    saved = compare(BEFORE).to_json()
    assert (saved["after"], saved["p_value"]) == (None, None)


def test_different_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="200 answers before and 199 after"):
        compare(BEFORE, AFTER[:-1])


def test_saved_results_give_the_same_comparison() -> None:
    saved = {
        "v": 1,
        "prompts": [str(index) for index in range(200)],
        "before": {"correct": BEFORE, "greedy_successes": 90},
        "after": {"correct": AFTER, "greedy_successes": None},
    }
    result = evaluation_from_saved(saved)
    assert result == compare(BEFORE, AFTER, greedy_before=90)
    assert "greedy  90/200 = 45.0 % -> N/A" in result.to_text()


@pytest.mark.parametrize("saved", [{}, {"before": {}}, {"before": {"correct": []}}, {"before": {"correct": 3}}])
def test_a_broken_eval_file_is_named_as_such(saved: dict[str, object]) -> None:
    with pytest.raises(RunDirError, match=r"eval\.json"):
        evaluation_from_saved(saved)
