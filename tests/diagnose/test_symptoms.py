"""Each symptom is seen where it is and not where it is not, on made series."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rl.diagnose import Context, Diagnosis, Finding, diagnose
from spark_rl.metrics import log_from_rows


def run(num_rows: int, context: Context | None = None, **columns: Callable[[int], float]) -> Diagnosis:
    """A made run: each column is a function of the row's index; noise comes from a fixed seed."""
    rows = [{"step": i + 1, **{key.replace("__", "/"): f(i) for key, f in columns.items()}} for i in range(num_rows)]
    return diagnose(log_from_rows(rows), context)


def noise(seed: int, size: float) -> Callable[[int], float]:
    source = random.Random(seed)
    return lambda _: source.gauss(0, size)


def found(diagnosis: Diagnosis, name: str) -> Finding:
    finding = diagnosis.find(name)
    assert finding is not None, [finding.id for finding in diagnosis.findings]
    return finding


def learning(i: int) -> float:
    """0.4 rising to 1.0 within 60 rows."""
    return min(1.0, 0.4 + i / 100)


def test_a_healthy_run_has_nothing_wrong() -> None:
    wiggle = noise(1, 0.05)
    diagnosis = run(
        100,
        reward=lambda i: learning(i) + wiggle(i),
        reward_std=lambda i: 0.3,
        grad_norm=lambda i: 0.5,
        kl=lambda i: 0.001 * i,
        entropy=lambda i: 0.8 - 0.003 * i,
    )
    assert found(diagnosis, "reward_trend").severity == "good"
    assert not [finding for finding in diagnosis.findings if finding.severity in ("fault", "warning")]
    assert "Nothing wrong" in diagnosis.headline


def test_pure_noise_is_rarely_called_a_trend() -> None:
    trends = [found(run(60, reward=noise(seed, 1.0)), "reward_trend") for seed in range(100)]
    sure = [trend for trend in trends if trend.subject != "flat" and "perhaps" not in trend.title]
    assert len(sure) <= 10  # 5 of 100 by the test's design, about 2 by looking for a peak


def test_a_rise_is_seen_through_noise_of_its_own_size() -> None:
    wiggle = noise(3, 0.5)
    assert found(run(100, reward=lambda i: i / 100 + wiggle(i)), "reward_trend").subject == "improving"


def test_a_rise_that_is_lost_again_is_a_late_fall() -> None:
    wiggle = noise(4, 0.05)
    diagnosis = run(100, reward=lambda i: (i if i < 50 else 100 - i) / 50 + wiggle(i))
    finding = found(diagnosis, "reward_trend")
    assert finding.title == "Reward falls again"
    assert finding.severity == "warning"


def test_a_rise_that_stays_is_not_a_fall() -> None:
    wiggle = noise(5, 0.05)
    finding = found(run(200, reward=lambda i: learning(i) + wiggle(i)), "reward_trend")
    assert finding.title == "Reward rose, and has held since"


def test_few_rows_say_that_they_are_few() -> None:
    diagnosis = run(5, reward=lambda i: i / 5)
    assert found(diagnosis, "few_rows").number("rows") == 5
    assert diagnosis.find("reward_trend") is None or found(diagnosis, "reward_trend").subject != "improving"


def test_a_part_that_never_fires_is_dead_and_a_rare_one_is_not() -> None:
    diagnosis = run(
        40,
        reward=learning,
        rewards__never=lambda i: 0.0,
        rewards__rare=lambda i: 1.0 if i == 20 else 0.0,
        rewards__always=lambda i: 0.2,
    )
    assert {finding.subject for finding in diagnosis.find_all("dead_reward_part")} == {"never", "always"}


def test_a_constant_mean_with_spread_is_not_dead() -> None:
    diagnosis = run(40, reward=learning, rewards__even__mean=lambda i: 0.5, rewards__even__std=lambda i: 0.5)
    assert diagnosis.find("dead_reward_part") is None


def test_groups_without_signal_are_split_by_where_they_score() -> None:
    def reward(i: int) -> float:
        return [0.0, 1.0, 0.37 + 0.01 * (i % 7)][i % 3] if i < 60 else 1.0

    diagnosis = run(80, reward=reward, reward_std=lambda i: 0.0 if i % 3 != 2 or i >= 60 else 0.4)
    finding = found(diagnosis, "zero_variance")
    assert (finding.number("floor"), finding.number("ceiling"), finding.number("plateau")) == (20, 40, 0)
    assert finding.severity == "info"  # at the end everything is solved


def test_a_policy_stuck_between_its_start_and_its_best_is_on_a_plateau() -> None:
    def reward(i: int) -> float:
        return i / 20 if i < 20 else (3.0 if i == 25 else 1.5)

    finding = found(run(120, reward=reward, reward_std=lambda i: 0.5 if i < 20 else 0.0), "zero_variance")
    assert finding.subject == "plateau"
    assert finding.severity == "fault"
    assert "3 was reached at step 26" in finding.words


def test_a_model_that_never_succeeds_is_at_the_floor() -> None:
    finding = found(run(50, reward=lambda i: 0.0, reward_std=lambda i: 0.0), "zero_variance")
    assert finding.subject == "floor"
    assert "easier prompts" in " ".join(finding.advice)


def test_a_loss_of_zero_is_normal_while_gradients_flow() -> None:
    diagnosis = run(12, reward=lambda i: 0.3, loss=lambda i: 0.0, grad_norm=lambda i: 0.9)
    assert found(diagnosis, "zero_loss_normal").severity == "info"


def test_a_loss_of_zero_with_no_gradient_is_a_fault() -> None:
    diagnosis = run(12, reward=lambda i: 0.0, loss=lambda i: 0.0, grad_norm=lambda i: 0.0, reward_std=lambda i: 0.0)
    assert found(diagnosis, "zero_loss_no_signal").severity == "fault"


def test_a_loss_of_zero_alone_is_not_judged() -> None:
    assert run(12, reward=lambda i: 0.3, loss=lambda i: 0.0).find("zero_loss_unclear") is not None


def test_nan_that_stays_is_fatal_and_nan_that_passes_is_not() -> None:
    nan = float("nan")
    lasting = run(30, reward=learning, loss=lambda i: nan if i >= 10 else 0.1)
    passing = run(30, reward=learning, loss=lambda i: nan if i == 10 else 0.1)
    assert found(lasting, "not_a_number").severity == "fault"
    assert found(lasting, "not_a_number").number("first_step") == 11
    assert found(passing, "not_a_number").severity == "warning"


def test_entropy_that_falls_while_answers_become_right_is_no_collapse() -> None:
    wiggle = noise(6, 0.02)
    diagnosis = run(100, reward=lambda i: learning(i) + wiggle(i), entropy=lambda i: max(0.02, 0.9 - i / 60))
    assert diagnosis.find("entropy_collapse") is None
    assert found(diagnosis, "entropy_converged").severity == "info"


def test_entropy_that_falls_without_success_is_a_collapse() -> None:
    wiggle = noise(7, 0.02)
    diagnosis = run(100, reward=lambda i: 0.4 + wiggle(i), entropy=lambda i: max(0.02, 0.9 - i / 60))
    assert found(diagnosis, "entropy_collapse").severity == "warning"
    assert next(v for v in diagnosis.variants if v.variant == "dapo").advised


@pytest.mark.parametrize(
    ("off_policy", "options", "words"),
    [
        (False, "--set grpo.epsilon_high=0.28 --set grpo.num_iterations=2", "as this run was: updates are on-policy"),
        (None, "--set grpo.epsilon_high=0.28", "which the log does not tell"),
        (True, "--set grpo.epsilon_high=0.28", None),
    ],
)
def test_clip_higher_is_advised_with_what_it_needs_to_change_anything(
    off_policy: bool | None, options: str, words: str | None
) -> None:
    wiggle = noise(7, 0.02)
    diagnosis = run(
        100,
        Context(off_policy=off_policy),
        reward=lambda i: 0.4 + wiggle(i),
        entropy=lambda i: max(0.02, 0.9 - i / 60),
    )
    dapo = next(v for v in diagnosis.variants if v.variant == "dapo")
    assert dapo.advised and dapo.options == options
    assert (dapo.precondition is None) if words is None else (words in (dapo.precondition or ""))
    assert f"    {options}" in diagnosis.to_text().splitlines()
    saved = next(v for v in diagnosis.to_json()["variants"] if v["variant"] == "dapo")
    assert saved["set"] == list(dapo.settings) and saved["precondition"] == dapo.precondition


def test_the_settings_of_every_advised_variant_are_settings_of_a_recipe() -> None:
    from spark_rl.recipe import resolve

    wiggle = noise(8, 0.05)
    lengthy = run(80, reward=lambda i: 0.4 + wiggle(i), completion_length=lambda i: 100.5 + 2 * i)
    mixed = run(40, Context(is_moe=True, off_policy=True), reward=learning)
    collapsed = run(100, Context(off_policy=False), reward=lambda i: 0.4, entropy=lambda i: max(0.02, 0.9 - i / 60))
    advised = [v for diagnosis in (lengthy, mixed, collapsed) for v in diagnosis.variants if v.advised]
    assert {v.variant for v in advised} == {"dapo", "dr_grpo", "gspo"}
    for variant in advised:
        assert (
            resolve("cpu-tiny", None, variant.settings).provenance[variant.settings[0].partition("=")[0]].source
            == "--set"
        )


def test_deterministic_answers_with_a_swinging_reward_are_a_shortcut() -> None:
    diagnosis = run(
        40,
        Context(learning_rate=2e-4),
        reward=lambda i: 0.3 + 0.02 * i if i < 10 else (0.2 if i % 4 else 1.0),
        entropy=lambda i: 0.9 / (1 + i) ** 2,
    )
    finding = found(diagnosis, "shortcut")
    assert "learning rate is too high" in finding.title
    assert not next(v for v in diagnosis.variants if v.variant == "dapo").advised


def test_one_kl_spike_is_not_a_blow_up() -> None:
    diagnosis = run(100, reward=learning, kl=lambda i: 3.0 if i == 40 else 0.05)
    assert found(diagnosis, "kl_spike").severity == "info"
    assert found(diagnosis, "kl_spike").number("step") == 41
    assert diagnosis.find("kl_blow_up") is None


def test_a_spike_in_the_last_rows_is_not_said_to_have_come_back() -> None:
    finding = found(run(100, reward=learning, kl=lambda i: 3.0 if i == 98 else 0.05), "kl_spike")
    assert "too few to see" in finding.words


def test_a_lasting_kl_is_a_blow_up() -> None:
    assert found(run(60, reward=learning, kl=lambda i: 0.05 * i**2), "kl_blow_up").severity == "fault"


def test_a_kl_jump_after_which_groups_score_alike_is_where_the_run_settled() -> None:
    diagnosis = run(
        100,
        reward=lambda i: 0.5 + 0.001 * i,
        kl=lambda i: 20.0 if i == 30 else 0.1,
        frac_reward_zero_std=lambda i: 0.1 if i < 30 else 0.8,
    )
    assert found(diagnosis, "kl_spike_settled").severity == "warning"


def test_no_kl_column_is_no_symptom() -> None:
    assert not [f for f in run(50, reward=learning).findings if f.id.startswith("kl")]


@pytest.mark.parametrize(("share", "severity"), [(0.1, None), (0.5, "warning"), (0.95, "fault")])
def test_cut_completions_are_judged_by_their_share(share: float, severity: str | None) -> None:
    diagnosis = run(40, reward=learning, completions__clipped_ratio=lambda i: share)
    finding = diagnosis.find("length_at_cap")
    assert (finding.severity if finding else None) == severity


def test_a_mean_length_at_a_value_that_keeps_returning_is_at_the_cap() -> None:
    diagnosis = run(40, reward=learning, completion_length=lambda i: 200.0 if i % 2 else 199.0)
    assert found(diagnosis, "length_at_cap").number("cap") == 200


def test_long_answers_far_from_the_cap_are_no_symptom() -> None:
    diagnosis = run(40, Context(max_completion_length=512), reward=learning, completion_length=lambda i: 200.0)
    assert diagnosis.find("length_at_cap") is None


def test_length_that_grows_without_reward_speaks_for_dr_grpo() -> None:
    wiggle = noise(8, 0.05)
    diagnosis = run(80, reward=lambda i: 0.4 + wiggle(i), completion_length=lambda i: 100.5 + 2 * i)
    assert diagnosis.find("length_without_quality") is not None
    assert next(v for v in diagnosis.variants if v.variant == "dr_grpo").advised


def test_length_that_grows_with_reward_is_fine() -> None:
    assert run(80, reward=learning, completion_length=lambda i: 100.5 + 2 * i).find("length_without_quality") is None


def test_a_reward_that_rises_without_heldout_success_is_said() -> None:
    context = Context(heldout_change=(-0.03, 0.05))
    assert found(run(80, context, reward=learning), "reward_without_quality").severity == "warning"
    assert run(80, Context(heldout_change=(0.2, 0.4)), reward=learning).find("reward_without_quality") is None


def test_too_few_heldout_prompts_are_no_evidence_that_quality_did_not_rise() -> None:
    diagnosis = run(80, Context(heldout_change=(-0.12, 1.0)), reward=learning)
    assert found(diagnosis, "reward_without_quality").severity == "info"
    assert not next(v for v in diagnosis.variants if v.variant == "dr_grpo").advised


def test_length_that_grows_with_reward_is_fine_where_too_few_heldout_prompts_say_nothing() -> None:
    few = Context(heldout_change=(-0.3, 0.4))
    diagnosis = run(80, few, reward=learning, completion_length=lambda i: 100.5 + 2 * i)
    assert diagnosis.find("length_without_quality") is None


def test_length_that_grows_while_heldout_success_falls_speaks_for_dr_grpo() -> None:
    worse = Context(heldout_change=(-0.3, -0.1))
    diagnosis = run(80, worse, reward=learning, completion_length=lambda i: 100.5 + 2 * i)
    assert diagnosis.find("length_without_quality") is not None
    assert next(v for v in diagnosis.variants if v.variant == "dr_grpo").advised


def test_a_rise_through_the_format_part_alone_is_said() -> None:
    wiggle = noise(9, 0.05)
    diagnosis = run(
        80,
        Context(part_meanings={"form": "format", "answer": "correct"}),
        reward=learning,
        rewards__form=learning,
        rewards__answer=lambda i: 0.3 + wiggle(i),
    )
    assert found(diagnosis, "form_not_answer").severity == "warning"


def test_a_total_that_rises_through_one_part_alone_is_said() -> None:
    wiggle = noise(10, 0.05)
    diagnosis = run(80, reward=learning, rewards__form=learning, rewards__accuracy=lambda i: 0.3 + wiggle(i))
    finding = found(diagnosis, "gain_through_one_part")
    assert (finding.subject, finding.severity) == ("form", "warning")
    both = run(80, reward=learning, rewards__form=learning, rewards__accuracy=learning)
    assert both.find("gain_through_one_part") is None


def test_entropy_that_explodes_while_the_reward_falls_is_said() -> None:
    diagnosis = run(60, reward=lambda i: 1 - i / 60, entropy=lambda i: 0.5 + i / 15)
    assert found(diagnosis, "entropy_explosion").severity == "warning"


def test_a_group_of_one_has_no_spread_and_is_a_fault() -> None:
    finding = found(run(10, reward=learning, reward_std=lambda i: float("nan")), "not_a_number")
    assert finding.severity == "fault"
    assert "group size of 1" in finding.advice[0]


def test_a_flat_lora_run_with_a_rate_for_full_fine_tuning_is_told_so() -> None:
    wiggle = noise(11, 0.05)
    diagnosis = run(60, Context(method="lora", learning_rate=5e-7), reward=lambda i: 0.4 + wiggle(i))
    assert "low for lora" in found(diagnosis, "reward_trend").advice[0]


def test_clip_ratios_of_zero_are_explained_with_the_loss() -> None:
    columns = {"reward": learning, "loss": lambda i: 0.0, "grad_norm": lambda i: 0.5}
    finding = found(run(12, **columns, clip_ratio__region_mean=lambda i: 0.0), "zero_loss_normal")
    assert "Clip ratios of 0 have the same cause" in finding.words


def test_evaluation_rows_alone_are_no_course() -> None:
    diagnosis = diagnose(log_from_rows([{"step": 1, "eval_reward": 0.3}]))
    assert "no row of training" in found(diagnosis, "no_rows").words


def test_engines_that_disagree_by_a_nat_are_a_fault() -> None:
    diagnosis = run(20, reward=learning, sampling__sampling_logp_difference__mean=lambda i: 1.4)
    assert found(diagnosis, "engines_disagree").severity == "fault"


@pytest.mark.parametrize(
    ("context", "advised"),
    [
        (Context(), False),
        (Context(is_moe=False, off_policy=True), False),
        (Context(is_moe=True, off_policy=False), False),
        (Context(is_moe=True, off_policy=None), False),
        (Context(is_moe=True, off_policy=True), True),
        (Context(is_moe=True, off_policy=True, importance_sampling_level="sequence"), False),
    ],
)
def test_gspo_is_advised_only_for_off_policy_mixtures_of_experts(context: Context, advised: bool) -> None:
    diagnosis = run(40, context, reward=learning)
    assert next(v for v in diagnosis.variants if v.variant == "gspo").advised is advised


def test_an_empty_log_says_why_there_is_nothing_to_judge() -> None:
    trainer = {"trainer_state": True, "logging_steps": 10, "max_steps": 6}
    diagnosis = diagnose(log_from_rows([], trainer=trainer))
    assert "logging_steps is 10" in found(diagnosis, "no_rows").words


def test_a_log_without_rewards_is_not_a_grpo_run() -> None:
    diagnosis = diagnose(log_from_rows([{"step": 1, "loss": 0.3}, {"step": 1, "eval_accuracy": 0.9}]))
    assert [finding.id for finding in diagnosis.findings] == ["not_grpo"]


keys = st.sampled_from(
    [
        *("reward", "reward_std", "kl", "entropy", "loss", "grad_norm", "frac_reward_zero_std", "rewards/a/mean"),
        *("rewards/a/std", "epoch", "completions/mean_length", "completions/clipped_ratio", "completions/max_length"),
    ]
)
numbers = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, 0.0, 1.0, 200.0, 1e308, -1e308])


@settings(max_examples=60)
@given(st.lists(st.dictionaries(keys, numbers, max_size=9), max_size=20))
def test_no_log_is_too_strange_to_be_answered(rows: list[dict[str, Any]]) -> None:
    diagnosis = diagnose(log_from_rows([{"step": i, **row} for i, row in enumerate(rows)]))
    assert diagnosis.headline
    json.dumps(diagnosis.to_json(), allow_nan=False)
    assert diagnosis.to_text()
