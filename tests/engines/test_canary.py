"""The canary's judgement: each way of not delivering weights has its name, and a healthy sync has none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_rl.rollout.canary import Logprobs, Sums, Sync, judge_logprobs, judge_prompts, judge_sync, threshold

NAMES = [f"model.layers.{index}.mlp.down_proj.weight" for index in range(4)] + ["model.embed_tokens.weight"]


def sums(shift: float, factor: float = 1.0) -> dict[str, Sums]:
    """Checksums of five tensors, each moved by `shift` times its own direction."""
    return {
        name: Sums(10.0 * index + factor * shift * (1 if index % 2 else -2), 1000.0 + factor * shift)
        for index, name in enumerate(NAMES)
    }


OLD, NEW = sums(0.0), sums(0.5)
FULL = Sync(expected=NEW, pushed=NEW, held=NEW)
LORA = Sync(expected=NEW, pushed=NEW, held=NEW, base=OLD)


def named(sync: Sync) -> str | None:
    told = judge_sync(sync)
    return told and told.name


def test_a_healthy_sync_is_silent() -> None:
    assert judge_sync(FULL) is None and judge_sync(LORA) is None


def test_summing_in_another_order_is_not_a_difference() -> None:
    held = {name: Sums(one.total + 1e-10, one.magnitude - 1e-10) for name, one in NEW.items()}
    assert judge_sync(replace(FULL, held=held)) is None


def test_an_engine_that_keeps_every_old_tensor_is_stale() -> None:
    assert named(replace(FULL, held=OLD)) == "stale"


def test_only_what_changed_counts_when_nothing_arrived() -> None:
    """Adapters leave most tensors of the base alone, so a stale engine agrees in those."""
    partly = {**OLD, NAMES[0]: NEW[NAMES[0]], NAMES[1]: NEW[NAMES[1]]}
    assert named(Sync(expected=partly, pushed=None, held=OLD, base=OLD, before=OLD)) == "stale"
    half = {**OLD, NAMES[0]: NEW[NAMES[0]]}
    assert named(Sync(expected=partly, pushed=partly, held=half, before=OLD)) == "half-synced"


def test_an_engine_that_keeps_one_old_tensor_is_half_synced_and_names_it() -> None:
    told = judge_sync(replace(FULL, held={**NEW, NAMES[2]: OLD[NAMES[2]]}))
    assert told is not None and told.name == "half-synced" and NAMES[2] in told.words


def test_a_tensor_that_is_never_pushed_is_half_synced() -> None:
    pushed = {name: one for name, one in NEW.items() if name != NAMES[1]}
    assert named(replace(FULL, pushed=pushed)) == "half-synced"


def test_base_weights_in_place_of_merged_ones_are_a_missing_adapter() -> None:
    assert named(replace(LORA, pushed=OLD, held=OLD)) == "adapter missing"


def test_twice_the_adapter_is_told_from_once() -> None:
    twice = sums(0.5, factor=2.0)
    assert named(replace(LORA, pushed=twice, held=twice)) == "adapter applied twice"


def test_a_merge_that_rounds_is_healthy() -> None:
    rounded = sums(0.5, factor=1.01)
    assert judge_sync(replace(LORA, pushed=rounded, held=rounded)) is None


def test_merged_weights_that_do_not_arrive_are_stale_not_a_missing_adapter() -> None:
    assert named(replace(LORA, held=OLD)) == "stale"


def test_an_adapter_that_is_still_zero_is_healthy() -> None:
    assert judge_sync(Sync(expected=OLD, pushed=OLD, held=OLD, base=OLD)) is None


def test_a_head_with_fewer_tokens_is_a_truncated_vocabulary() -> None:
    assert named(replace(FULL, vocabulary=(151_936, 151_643))) == "truncated vocabulary"
    assert named(replace(FULL, vocabulary=(151_936, 151_936))) is None


def test_an_embedding_alone_that_differs_is_a_truncated_vocabulary() -> None:
    assert named(replace(FULL, held={**NEW, NAMES[4]: Sums(0.0, 900.0)})) == "truncated vocabulary"


def test_tensors_that_cannot_be_read_are_not_judged() -> None:
    assert judge_sync(replace(FULL, held={})) is None


# prompts


def test_prompts_as_inspected_are_silent() -> None:
    assert judge_prompts([[1, 2]], [[1, 2]], [[1, 2]]) is None


@pytest.mark.parametrize(("given", "read"), [([[9, 1, 2]], [[9, 1, 2]]), ([[1, 2]], [[9, 1, 2]])])
def test_other_prompts_are_a_wrong_chat_template(given: list[list[int]], read: list[list[int]]) -> None:
    told = judge_prompts([[1, 2]], given, read)
    assert told is not None and told.name == "wrong chat template"


# log-probabilities

HEALTHY = Logprobs(mean_difference=0.02, mean_signed=0.001, num_tokens=500, dtype="bfloat16")


def test_the_first_comparison_is_held_to_the_dtypes_ceiling() -> None:
    assert judge_logprobs(HEALTHY, noise=None) is None
    assert judge_logprobs(replace(HEALTHY, mean_difference=0.4), noise=None) is not None


def test_later_ones_are_held_to_what_the_first_measured() -> None:
    assert judge_logprobs(replace(HEALTHY, mean_difference=0.03), noise=0.02) is None
    assert judge_logprobs(replace(HEALTHY, mean_difference=0.12), noise=0.02) is not None


def test_noise_cannot_lift_the_limit_above_the_ceiling() -> None:
    assert threshold(noise=10.0, dtype="bfloat16") == threshold(noise=None, dtype="bfloat16")


def test_a_trainer_that_moved_without_its_engine_is_stale_at_any_size() -> None:
    now = replace(HEALTHY, mean_difference=0.03, followed=0.02, progress=0.08)
    told = judge_logprobs(now, noise=0.02)
    assert told is not None and told.name == "stale"


def test_half_of_the_movement_is_half_synced_and_double_is_an_adapter_twice() -> None:
    half, double = replace(HEALTHY, followed=0.4, progress=0.08), replace(HEALTHY, followed=1.9, progress=0.08)
    assert [told and told.name for told in (judge_logprobs(half, 0.02), judge_logprobs(double, 0.02))] == [
        "half-synced",
        "adapter applied twice",
    ]


def test_a_movement_within_the_noise_says_nothing() -> None:
    assert judge_logprobs(replace(HEALTHY, followed=0.0, progress=0.03), noise=0.02) is None


def test_a_sampler_surer_of_every_token_has_a_truncated_vocabulary() -> None:
    now = replace(HEALTHY, mean_difference=0.5, mean_signed=0.49, fixed_difference=0.01)
    told = judge_logprobs(now, noise=0.02)
    assert told is not None and told.name == "truncated vocabulary"


def test_a_difference_on_sampled_but_not_on_fixed_prompts_is_a_wrong_template() -> None:
    now = replace(HEALTHY, mean_difference=0.5, mean_signed=0.0, fixed_difference=0.01)
    told = judge_logprobs(now, noise=0.02)
    assert told is not None and told.name == "wrong chat template"


def test_every_name_has_advice() -> None:
    for told in (judge_sync(replace(FULL, held=OLD)), judge_logprobs(replace(HEALTHY, mean_difference=9.0), 0.02)):
        assert told is not None and told.hint
