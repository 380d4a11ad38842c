"""GRPO for real, on the CPU, with the embedded model: it learns from the reward, and from nothing else."""

from __future__ import annotations

import pytest

from spark_rl.stats import wilson_interval
from tests.engines.conftest import drive

pytestmark = [pytest.mark.train, pytest.mark.slow]

LORA = [
    "tuning.method=lora",
    "lora.r=16",
    "lora.lora_alpha=16",
    "grpo.learning_rate=2e-3",
]


def share(flags):
    return sum(flags) / len(flags)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """30 steps of full fine-tuning with TRL alone."""
    return drive({"sets": ["engine.name=plain", "grpo.max_steps=30"]}, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def unsloth_lora(tmp_path_factory):
    """25 steps of LoRA through Unsloth's CPU backend."""
    sets = ["engine.name=unsloth", "grpo.max_steps=25", "grpo.optim=adamw_8bit", *LORA]
    return drive({"sets": sets}, tmp_path_factory.mktemp("lora"))


def test_full_fine_tuning_with_trl_raises_heldout_success(plain):
    assert share(plain["after"]["correct"]) >= share(plain["before"]["correct"]) + 0.2


def test_lora_with_unsloth_raises_heldout_success(unsloth_lora):
    assert share(unsloth_lora["after"]["correct"]) >= share(unsloth_lora["before"]["correct"]) + 0.2


def test_training_moves_the_weights(plain, unsloth_lora):
    for run in (plain, unsloth_lora):
        assert run["changed"] and min(run["changed"]) > 0.5


def test_the_adapter_changes_what_is_sampled_under_the_same_seed(unsloth_lora):
    assert unsloth_lora["before"]["texts"] != unsloth_lora["after"]["texts"]


def test_sampling_is_reproducible(plain, unsloth_lora):
    assert plain["reproducible"] and unsloth_lora["reproducible"]


def test_every_step_is_logged_and_its_completions_seen(plain):
    assert [row["step"] for row in plain["metrics"]] == list(range(1, 31))
    assert plain["num_samples"] == 30 * 64


def test_nothing_was_replaced_without_a_reason(plain, unsloth_lora):
    for run in (plain, unsloth_lora):
        assert [one for one in run["effective"]["differences"] if one["reason"] is None] == []


def test_what_unsloth_really_replaces_on_a_cpu_is_said(unsloth_lora):
    said = {one["key"]: one["effective"] for one in unsloth_lora["effective"]["differences"]}
    assert said == {"optim": "adamw_torch_fused", "trainer_class": "GRPOTrainer"}


def test_what_was_built_is_read_back(plain, unsloth_lora):
    full, lora = plain["effective"]["values"], unsloth_lora["effective"]["values"]
    assert full["trained_dtypes"] == {"float32": full["num_parameters"]} and full["lora_wrapped"] is None
    assert set(lora["lora_wrapped"].values()) == {4} and len(lora["lora_wrapped"]) == 7
    assert lora["lora_ranks"] == [16]
    assert list(lora["trained_dtypes"]) == ["float32"] and "AdamW" in lora["optimizer_class"]
    assert list(lora["optimizer_state_bytes"]) == ["cpu float32"]
    assert (full["num_tiled_mlp"], full["input_embedding_device"], full["memory_cap_bytes"]) == (0, "cpu", None)


def test_the_share_of_weights_that_moved_is_told(plain, unsloth_lora):
    for run in (plain, unsloth_lora):
        assert [row["event"] for row in run["notes"]] == ["weights_moved"]


def test_updates_that_vanish_in_bf16_stop_the_run_with_three_ways_out(tmp_path):
    """The reference rate on plain bf16 weights, for real."""
    sets = ["engine.name=plain", "grpo.max_steps=5", "grpo.learning_rate=5e-7", "tuning.master_weights=none"]
    with pytest.raises(AssertionError) as stopped:
        drive({"sets": [*sets, "model.dtype=bfloat16"], "num_heldout": 20}, tmp_path)
    words = str(stopped.value)
    assert "training does nothing" in words and "bfloat16" in words


def test_a_stopped_run_goes_on_where_it_stopped(tmp_path):
    sets = ["engine.name=plain", "grpo.max_steps=8", "grpo.save_steps=4"]
    first = drive({"sets": sets, "stop_at": 6, "num_heldout": 20}, tmp_path)
    assert (first["step"], first["stopped"]) == (6, True)
    second = drive({"sets": sets, "resume": True, "num_heldout": 20}, tmp_path)
    assert [row["step"] for row in second["metrics"]] == [7, 8]


def test_a_constant_reward_teaches_nothing(tmp_path):
    run = drive({"sets": ["engine.name=plain", "grpo.max_steps=30"], "control": "constant"}, tmp_path)
    before, after = run["before"]["correct"], run["after"]["correct"]
    assert share(after) in wilson_interval(sum(before), len(before))


def test_another_prompts_answer_teaches_nothing(tmp_path):
    run = drive({"sets": ["engine.name=plain", "grpo.max_steps=30"], "control": "shuffled"}, tmp_path)
    before, after = run["before"]["correct"], run["after"]["correct"]
    assert share(after) in wilson_interval(sum(before), len(before))
