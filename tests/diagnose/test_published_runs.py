"""Saved runs of other people are read as `cases/README.md` says they should be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_rl.diagnose import Diagnosis, Finding, diagnose
from spark_rl.metrics import log_from_rows, read_log

pytestmark = pytest.mark.cases

FILES = {
    "01": "01_llama31_gsm8k_250steps_dead_format_rewards.trainer_state.json",
    "03": "03_minesweeper_json_entropy_fall_zero_std.trainer_state.json",
    "04": "04_trading_length_saturated_100pct_clipped.trainer_state.json",
    "06": "06_r1distill_format_zero_loss0.trainer_state.json",
    "07": "07_empty_log_history.trainer_state.json",
    "09": "09_single_eval_row_only.trainer_state.json",
    "t1": "t1_llama32_3b_healthy_500steps_kl_spike.csv",
    "t3": "t3_ministral_sudoku_kl29_then_std_collapse.csv",
    "t7": "t7_phi4_14b_flat_length_at_cap.csv",
    "s1": "s1_smollm2_larger_lr2e-4_shortcut_entropy_collapse.metrics.jsonl",
    "s2": "s2_smollm2_add_lr5e-5_noisy_improvement.metrics.jsonl",
}


@pytest.fixture
def read(cases_dir: Path):
    return lambda name: diagnose(read_log(cases_dir / "runs" / FILES[name]))


def found(diagnosis: Diagnosis, name: str) -> Finding:
    finding = diagnosis.find(name)
    assert finding is not None, [finding.id for finding in diagnosis.findings]
    return finding


def alarms(diagnosis: Diagnosis) -> set[str]:
    return {finding.id for finding in diagnosis.findings if finding.severity in ("fault", "warning")}


def test_01_improves_with_two_dead_parts_and_zero_variance_at_both_ends(read) -> None:
    diagnosis = read("01")
    assert found(diagnosis, "reward_trend").subject == "improving"
    assert {finding.subject for finding in diagnosis.find_all("dead_reward_part")} == {
        "soft_format_reward_func",
        "strict_format_reward_func",
    }
    split = found(diagnosis, "zero_variance")
    assert [split.number(name) for name in ("rows", "floor", "ceiling", "plateau")] == [64, 37, 27, 0]
    assert alarms(diagnosis) == {"dead_reward_part"}


def test_03_falls_late_with_a_small_cap_and_groups_that_score_alike(read) -> None:
    diagnosis = read("03")
    assert found(diagnosis, "reward_trend").title == "Reward falls again"
    assert found(diagnosis, "length_at_cap").number("cap") == 128
    assert found(diagnosis, "entropy_falling").severity == "warning"
    assert found(diagnosis, "zero_variance").severity == "warning"
    assert not any(finding.id.startswith("kl") for finding in diagnosis.findings)


def test_04_is_cut_off_at_its_cap_and_shows_no_trend(read) -> None:
    diagnosis = read("04")
    cap = found(diagnosis, "length_at_cap")
    assert (cap.number("cap"), cap.severity) == (512, "fault")
    assert "Raise max_completion_length" in cap.advice[0]
    assert "filter" in cap.advice[1]
    assert found(diagnosis, "reward_trend").subject == "flat"
    assert alarms(diagnosis) == {"length_at_cap"}


def test_06_works_though_its_loss_prints_as_zero(read) -> None:
    diagnosis = read("06")
    assert found(diagnosis, "zero_loss_normal").severity == "info"
    assert [finding.subject for finding in diagnosis.find_all("dead_reward_part")] == ["r2_format"]
    assert alarms(diagnosis) == {"dead_reward_part"}


def test_07_has_nothing_to_judge_and_says_why(read) -> None:
    assert "logging_steps is 10 and the run has only 6 steps" in found(read("07"), "no_rows").words


def test_09_is_not_a_grpo_run(read) -> None:
    assert [finding.id for finding in read("09").findings] == ["not_grpo"]


def test_t1_is_healthy_and_its_kl_spike_is_no_collapse(read) -> None:
    diagnosis = read("t1")
    assert found(diagnosis, "kl_spike").number("step") == 111
    assert found(diagnosis, "reward_trend").severity == "good"
    assert alarms(diagnosis) == set()


def test_t3_settled_on_a_plateau_after_its_kl_jumped(read) -> None:
    diagnosis = read("t3")
    split = found(diagnosis, "zero_variance")
    assert (split.number("rows"), split.subject, split.severity) == (150, "plateau", "fault")
    assert "32 was reached" in split.words
    jump = found(diagnosis, "kl_spike_settled")
    assert jump.number("step") == 34
    assert not any(variant.advised for variant in diagnosis.variants)


def test_t7_is_flat_at_a_cap_that_is_too_small(read) -> None:
    diagnosis = read("t7")
    assert found(diagnosis, "length_at_cap").number("cap") == 200
    assert found(diagnosis, "reward_trend").subject == "flat"
    assert alarms(diagnosis) == {"length_at_cap"}


def test_s1_settled_on_a_shortcut_because_of_its_learning_rate(read) -> None:
    diagnosis = read("s1")
    assert "learning rate is too high" in found(diagnosis, "shortcut").title
    assert found(diagnosis, "entropy_collapse").severity == "warning"
    assert found(diagnosis, "reward_trend").subject == "flat"
    assert not any(variant.advised for variant in diagnosis.variants)


def test_s2_is_perhaps_improving_and_has_few_rows(read) -> None:
    diagnosis = read("s2")
    assert found(diagnosis, "reward_trend").title == "Reward perhaps improving"
    assert found(diagnosis, "few_rows").number("rows") == 12
    assert alarms(diagnosis) == set()


def issue(cases_dir: Path, ref: str) -> dict[str, object]:
    lines = (cases_dir / "data" / "issue_metric_lines.jsonl").read_text().splitlines()
    return next(row for row in map(json.loads, lines) if row["ref"] == ref)


def test_the_loss_of_zero_that_people_ask_about_is_normal(cases_dir: Path) -> None:
    rows = issue(cases_dir, "huggingface/open-r1#239")["log_rows"]
    diagnosis = diagnose(log_from_rows(rows))  # type: ignore[arg-type]
    assert found(diagnosis, "zero_loss_normal").severity == "info"
    assert alarms(diagnosis) == set()


def test_some_groups_without_variance_are_no_error(cases_dir: Path) -> None:
    spreads = issue(cases_dir, "unslothai/unsloth#2291")["series"]["reward_std"]  # type: ignore[index]
    rows = [{"step": i, "loss": 0.0, "reward": -1.0 - i, "reward_std": spread} for i, spread in enumerate(spreads)]
    diagnosis = diagnose(log_from_rows(rows))
    assert diagnosis.find("zero_variance") is not None
    assert diagnosis.find("zero_loss_normal") is not None
    assert alarms(diagnosis) == set()


def test_a_collapse_onto_a_penalised_reward_is_alarmed_and_no_variant_advised(cases_dir: Path) -> None:
    row = issue(cases_dir, "kirang89/ocamler-grpo doc/mode-collapse-epoch-0.04-analysis.md")
    each = 10  # logged rows for each quoted hundredth of an epoch
    rows = [
        {
            "step": i + 1,
            "entropy": (row["entropy_low"][i // each] + row["entropy_high"][i // each]) / 2,  # type: ignore[index]
            "frac_reward_zero_std": row["frac_zero_std_max"][i // each],  # type: ignore[index]
            "reward": row["reward_mean"][i // each] + 0.002 * (i % 3),  # type: ignore[index]
        }
        for i in range(4 * each)
    ]
    diagnosis = diagnose(log_from_rows(rows))
    assert {"zero_variance", "entropy_falling"} <= alarms(diagnosis)
    assert not any(variant.advised for variant in diagnosis.variants)
