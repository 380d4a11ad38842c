"""What saved completions tell about groups that the logged numbers do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spark_rl.diagnose import diagnose
from spark_rl.metrics import StepSamples, group_columns, log_from_rows, read_samples, with_columns


def sample(prompt: str, total: float | None, correct: bool | None) -> dict[str, Any]:
    return {"prompt": prompt, "completion": "x", "total": total, "correct": correct, "parts": {}}


def step(number: int, *groups: tuple[list[float | None], list[bool]]) -> StepSamples:
    """One step; each group has its own prompt."""
    rows = [
        sample(f"prompt {index}", total, correct)
        for index, (totals, corrects) in enumerate(groups)
        for total, correct in zip(totals, corrects, strict=True)
    ]
    return StepSamples(number, tuple(rows))


def test_groups_are_counted_by_where_they_score_alike() -> None:
    solved, failed = ([1.2] * 4, [True] * 4), ([0.0] * 4, [False] * 4)
    plateau, mixed = ([0.6] * 4, [False] * 4), ([0.0, 1.2, 0.0, 0.0], [False, True, False, False])
    columns = group_columns([step(1, solved, failed, plateau, mixed)], 4)[1]
    assert columns["groups/zero_share"] == 0.75
    assert [columns[f"groups/{place}_share"] for place in ("ceiling", "floor", "plateau")] == [0.25] * 3
    assert columns["correct"] == 5 / 16


def test_rounding_does_not_make_equal_scores_different() -> None:
    """A group that all scored .2 + 1 has a 32-bit deviation of 1e-7, which TRL counts as spread."""
    columns = group_columns([step(1, ([1.2, 1.2000000477, 1.2, 1.2], [True] * 4))], 4)[1]
    assert columns["groups/zero_share"] == 1.0


def test_a_prompt_drawn_twice_makes_two_groups() -> None:
    rows = [sample("same", float(i // 4), i >= 4) for i in range(8)]
    columns = group_columns([StepSamples(1, tuple(rows))], 4)[1]
    assert (columns["groups/count"], columns["groups/zero_share"]) == (2.0, 1.0)


def test_unscored_completions_leave_a_group_unjudged() -> None:
    columns = group_columns([step(1, ([None, None], [False, False]))], 2)[1]
    assert columns["groups/zero_share"] == 0.0


def test_saved_completions_are_read_by_step_and_torn_lines_left_out(tmp_path: Path) -> None:
    for number in (10, 9):
        text = json.dumps(sample("p", 1.0, True)) + "\n" + '{"prompt": "torn", "comp'
        (tmp_path / f"{number:06d}.jsonl").write_text(text)
    (tmp_path / "notes.jsonl").write_text("{}")
    assert [(samples.step, len(samples.rows)) for samples in read_samples(tmp_path)] == [(9, 1), (10, 1)]


def test_groups_that_are_solved_at_the_end_are_no_waste() -> None:
    steps = [
        step(i, ([0.0, 1.2], [False, True]) if i < 20 else ([1.2, 1.2], [True, True]), ([0.0, 1.2], [False, True]))
        for i in range(1, 61)
    ]
    log = log_from_rows(
        [{"step": i, "reward": 0.6 if i < 20 else 0.9, "frac_reward_zero_std": 0.0} for i in range(1, 61)]
    )
    finding = diagnose(with_columns(log, group_columns(steps, 2))).find("zero_variance")
    assert finding is not None
    assert (finding.subject, finding.severity) == ("ceiling", "info")


def test_groups_that_all_fail_at_the_end_are_a_fault() -> None:
    steps = [step(i, ([0.0, 1.2], [False, True]) if i < 5 else ([0.0, 0.0], [False, False])) for i in range(1, 41)]
    log = log_from_rows([{"step": i, "reward": 0.6 if i < 5 else 0.0} for i in range(1, 41)])
    finding = diagnose(with_columns(log, group_columns(steps, 2))).find("zero_variance")
    assert finding is not None
    assert (finding.subject, finding.severity) == ("floor", "fault")
