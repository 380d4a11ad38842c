"""Recipes on machines: verdicts, effective values, refusals, remedies, phases that add up, text that fits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_rl.errors import ConfigError, Refused
from spark_rl.fit import fit_report
from spark_rl.fit.remedies import with_settings
from spark_rl.host import Machine, machine_class, machine_of_size
from spark_rl.recipe import Recipe
from spark_rl.units import GIB
from tests.fit.conftest import MakeRecipe

SPARK = machine_class("dgx-spark")
CARD_24 = machine_class("24")
FULL = ("tuning.method=full", "tuning.master_weights=stochastic", "grpo.optim=adamw_torch_8bit")


def with_total(machine: Machine, gib: float) -> Machine:
    return replace(machine, device_total_bytes=int(gib * GIB))


# ------------------------------------------------------------------------------------------------ the arithmetic


def test_a_phase_is_the_sum_of_its_lines(make_recipe: MakeRecipe) -> None:
    report = fit_report(make_recipe(), CARD_24)
    for phase in report.phases:
        assert phase.total() == pytest.approx(sum(line.num_bytes for line in phase.lines if line.pool == "device"))


def test_every_line_says_how_it_follows(make_recipe: MakeRecipe) -> None:
    for machine in (CARD_24, SPARK, machine_class("cpu")):
        for phase in fit_report(make_recipe("rollout.kind=native"), machine).phases:
            assert all(line.formula and line.num_bytes >= 0 for line in phase.lines), phase.name


def test_the_phases_are_in_the_order_they_happen(make_recipe: MakeRecipe) -> None:
    names = [phase.name for phase in fit_report(make_recipe(), CARD_24).phases]
    assert names == [
        "load",
        "rollout",
        "weight sync",
        "log-prob pass",
        "forward+backward",
        "optimizer step",
        "save",
        "resume",
    ]


def test_json_has_bytes_as_integers_and_a_unit_on_every_line(make_recipe: MakeRecipe) -> None:
    found = json.loads(json.dumps(fit_report(make_recipe(), CARD_24).to_json(), allow_nan=False))
    assert isinstance(found["peak_bytes"], int)
    assert all(line["unit"] == "B" for phase in found["phases"] for line in phase["lines"])


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("explain", [False, True])
def test_no_line_of_text_is_wider_than_asked(make_recipe: MakeRecipe, width: int, explain: bool) -> None:
    text = fit_report(make_recipe(*FULL), machine_class("12")).to_text(width, explain)
    assert max(len(line) for line in text.splitlines()) <= width
    assert text.isascii()


def test_the_peak_is_marked_once(make_recipe: MakeRecipe) -> None:
    assert fit_report(make_recipe(), CARD_24).to_text().count("<- peak") == 1


# ------------------------------------------------------------------------------------------------ verdicts


def test_just_under_the_peak_does_not_fit_and_far_above_fits(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe("rollout.kind=native", "memory.unsloth_grpo_mini_batch=1")
    peak = fit_report(recipe, CARD_24).peak_bytes / GIB
    assert fit_report(recipe, with_total(CARD_24, peak * 0.98)).verdict == "does_not_fit"
    assert fit_report(recipe, with_total(CARD_24, peak * 2)).verdict == "fits"


def test_inside_the_band_is_tight(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe("rollout.kind=native", "memory.unsloth_grpo_mini_batch=1")
    report = fit_report(recipe, CARD_24)
    middle = (report.peak_bytes + report.high_bytes) / 2 / GIB
    assert fit_report(recipe, with_total(CARD_24, middle)).verdict == "tight"


def test_a_cache_below_zero_does_not_fit_and_shows_the_terms(make_recipe: MakeRecipe) -> None:
    report = fit_report(make_recipe("model.id=Qwen/Qwen2.5-7B-Instruct", "vllm.gpu_memory_utilization=0.3"), CARD_24)
    assert report.verdict == "does_not_fit"
    assert "no room for a KV cache" in (report.engine_problem or "")
    assert "budget 7.05" in (report.engine_problem or "")


def test_less_than_one_full_request_does_not_fit(make_recipe: MakeRecipe) -> None:
    report = fit_report(make_recipe(f"vllm.kv_cache_memory_bytes={16 * 1024**2}"), CARD_24)
    assert report.concurrency is not None and report.concurrency < 1
    assert report.verdict == "does_not_fit"


def test_memory_is_planned_for_the_longest_sample(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe("model.max_seq_length=4608", "grpo.max_completion_length=4096")
    report = fit_report(recipe, machine_class("48"))
    assert report.work.tokens_per_row == 512 + 4096
    assert any("not for the mean" in note and "first step on the longest prompts" in note for note in report.notes)


# ------------------------------------------------------------------------------------------------ effective values


def test_standby_s_share_and_the_variable_that_keeps_the_asked_one_are_said(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe(
        "model.id=Qwen/Qwen2.5-Coder-3B-Instruct", "rollout.kind=unsloth_vllm", "vllm.standby=true",
        "vllm.gpu_memory_utilization=0.5", "lora.r=256", "model.max_seq_length=4096",
    )  # fmt: skip
    report = fit_report(recipe, machine_class("a100-40"))
    assert report.work.engine.utilization == pytest.approx(0.879, abs=0.001)
    assert any("0.879" in note and "UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE" in note for note in report.notes)


def test_gb10_has_no_shared_engine(make_recipe: MakeRecipe) -> None:
    with pytest.raises(Refused, match="GB10"):
        fit_report(make_recipe("rollout.kind=unsloth_vllm", "vllm.standby=true"), SPARK)


def test_an_8_bit_optimizer_without_a_gpu_is_said_to_be_replaced(make_recipe: MakeRecipe) -> None:
    report = fit_report(make_recipe("rollout.kind=native", "model.dtype=float32"), machine_class("cpu"))
    assert report.work.optimizer == "adamw_torch_fused"
    assert any("becomes adamw_torch_fused" in note for note in report.notes)


def test_a_mini_batch_count_is_a_count(make_recipe: MakeRecipe) -> None:
    report = fit_report(make_recipe("memory.unsloth_grpo_mini_batch=4"), CARD_24)
    assert report.work.rows == 2


def test_a_reference_copy_is_there_only_with_beta_and_full_tuning(make_recipe: MakeRecipe) -> None:
    def copies(*sets: str) -> bool:
        report = fit_report(make_recipe(*sets), machine_class("80"))
        return any(line.name == "reference model" for phase in report.phases for line in phase.lines)

    assert copies(*FULL, "grpo.beta=0.01")
    assert not copies(*FULL, "grpo.beta=0.0")
    assert not copies("grpo.beta=0.01")


def test_bitsandbytes_keeps_32_bit_state_for_embeddings(make_recipe: MakeRecipe) -> None:
    def state(optim: str) -> float:
        report = fit_report(
            make_recipe("tuning.method=full", f"grpo.optim={optim}", "model.id=Qwen/Qwen2.5-0.5B-Instruct"), CARD_24
        )
        return next(line.num_bytes for line in report.peak.lines if line.name == "optimizer state")

    embedding = 151936 * 896
    assert state("adamw_8bit") - state("adamw_torch_8bit") == pytest.approx((8 - 2.03125) * embedding, rel=0.01)


# ------------------------------------------------------------------------------------------------ unified memory


def test_unified_memory_is_one_pool_less_the_floor(make_recipe: MakeRecipe) -> None:
    report = fit_report(make_recipe("rollout.kind=native"), SPARK)
    assert report.budget.one_pool
    assert report.budget.device_bytes == pytest.approx(118_566_368 * 1024 - 12 * GIB)
    assert any(line.name == "host-side overhead" for line in report.peak.lines)


@pytest.mark.parametrize(
    "setting",
    [
        "vllm.sleep_level=1",
        "memory.gradient_checkpointing=unsloth",
        "grpo.optim=paged_adamw_8bit",
        "memory.offload_optimizer_state=true",
        "memory.park_optimizer_during_rollout=true",
        "memory.offload_embedding=true",
    ],
)
def test_a_lever_that_frees_nothing_on_unified_memory_says_so(make_recipe: MakeRecipe, setting: str) -> None:
    plain, changed = fit_report(make_recipe(), SPARK), fit_report(make_recipe(setting), SPARK)
    key = setting.split("=")[0]
    assert any(key in note and "same DRAM" in note for note in changed.notes)
    assert changed.peak_bytes >= plain.peak_bytes - 1


def test_parking_the_optimizer_frees_memory_on_a_discrete_card(make_recipe: MakeRecipe) -> None:
    def rollout(recipe: Recipe) -> float:
        return next(phase for phase in fit_report(recipe, CARD_24).phases if phase.name == "rollout").total()

    recipe = make_recipe(*FULL, "grpo.beta=0.0")
    parked = with_settings(recipe, {"memory.park_optimizer_during_rollout": True})
    assert rollout(parked) < rollout(recipe) - GIB


def test_no_remedy_moves_the_state_of_an_optimizer_that_unsloth_cannot_move(make_recipe: MakeRecipe) -> None:
    small = machine_class("12")
    stochastic = make_recipe(*FULL, "tuning.master_weights=stochastic", "grpo.optim=adamw_torch_8bit")
    said = [word for remedy in fit_report(stochastic, small).remedies for word in remedy.settings]
    assert said and not any("park_optimizer" in word or "offload_optimizer" in word for word in said)


# ------------------------------------------------------------------------------------------------ refusals


def test_qlora_with_trl_s_colocated_engine_is_refused_with_two_ways_out(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe("tuning.method=qlora", "model.quantization=bnb-4bit", "engine.name=plain")
    with pytest.raises(Refused, match="bnb-4bit") as caught:
        fit_report(recipe, CARD_24)
    first, second = (caught.value.hint or "").split("; or ")
    assert "native" in first
    assert "16-bit base" in second


def test_full_tuning_with_the_shared_engine_is_refused(make_recipe: MakeRecipe) -> None:
    with pytest.raises(Refused, match="full fine-tuning"):
        fit_report(make_recipe(*FULL, "rollout.kind=unsloth_vllm"), CARD_24)


def test_standby_and_expandable_segments_are_refused_together(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe(
        "rollout.kind=unsloth_vllm", "vllm.standby=true", 'memory.alloc_conf="expandable_segments:True"'
    )
    with pytest.raises(Refused, match="exclude each other"):
        fit_report(recipe, CARD_24)


def test_an_optimizer_whose_memory_is_unknown_is_refused(make_recipe: MakeRecipe) -> None:
    with pytest.raises(ConfigError, match="optimizer 'adamw_9bit' is not known") as caught:
        fit_report(make_recipe("grpo.optim=adamw_9bit"), CARD_24)
    assert "adamw_8bit" in (caught.value.hint or "")


def test_a_machine_whose_memory_sensor_is_silent_is_refused(make_recipe: MakeRecipe) -> None:
    silent = replace(CARD_24, device_total_bytes=None)
    with pytest.raises(ConfigError, match="sensor") as caught:
        fit_report(make_recipe(), silent)
    assert "--machine" in (caught.value.hint or "")


@pytest.mark.parametrize("gib", [0, -3, 10**6, float("nan")])
def test_a_nonsense_size_is_refused(gib: float) -> None:
    with pytest.raises(ConfigError, match="not a size"):
        machine_of_size(gib)


# ------------------------------------------------------------------------------------------------ remedies


def test_each_remedy_is_recomputed_and_fits(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe("model.id=Qwen/Qwen2.5-3B-Instruct", "tuning.method=full", "tuning.master_weights=fp32")
    report = fit_report(recipe, CARD_24)
    assert report.verdict == "does_not_fit"
    assert report.remedies
    for remedy in report.remedies:
        assert remedy.verdict != "does_not_fit"
        assert remedy.peak_bytes <= report.budget.device_bytes


def test_a_change_of_method_is_the_last_advice(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe("model.id=Qwen/Qwen2.5-3B-Instruct", "tuning.method=full", "tuning.master_weights=fp32")
    kinds = ["tuning.method" in " ".join(remedy.settings) for remedy in fit_report(recipe, CARD_24).remedies]
    assert kinds == sorted(kinds)


def test_no_advice_frees_nothing_on_unified_memory(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe("model.id=Qwen/Qwen2.5-14B-Instruct", "tuning.method=full", "tuning.master_weights=fp32")
    report = fit_report(recipe, SPARK)
    assert report.verdict == "does_not_fit"
    for remedy in report.remedies:
        assert not any(
            "park" in setting or "offload" in setting or setting.endswith("=unsloth") for setting in remedy.settings
        )


def test_a_hopeless_model_gets_a_sentence(make_recipe: MakeRecipe) -> None:
    report = fit_report(make_recipe("model.id=meta-llama/Llama-3.1-405B", "tuning.method=full"), machine_class("12"))
    assert report.remedies == ()
    assert "choose a smaller model" in report.to_text()


def test_an_offloaded_embedding_leaves_the_device_of_a_discrete_card(make_recipe: MakeRecipe) -> None:
    def weights(*sets: str) -> float:
        report = fit_report(make_recipe("model.id=Qwen/Qwen2.5-7B-Instruct", *sets), machine_class("48"))
        return next(line.num_bytes for line in report.phases[0].lines if line.name == "weights")

    assert weights() - weights("memory.offload_embedding=true") == pytest.approx(152064 * 3584 * 2)


@pytest.mark.parametrize("where", ["engine.name=plain", "rollout.kind=unsloth_vllm"])
def test_an_embedding_that_will_not_be_moved_is_counted_on_the_device(make_recipe: MakeRecipe, where: str) -> None:
    sets = ("model.id=Qwen/Qwen2.5-7B-Instruct", "rollout.kind=native", where)
    moved = fit_report(make_recipe(*sets, "memory.offload_embedding=true"), machine_class("48"))
    assert moved.peak_bytes == fit_report(make_recipe(*sets), machine_class("48")).peak_bytes


def test_a_host_that_is_too_small_does_not_fit(make_recipe: MakeRecipe) -> None:
    small_host = replace(machine_class("180"), host_total_bytes=16 * GIB)
    report = fit_report(make_recipe(*FULL, "model.id=Qwen/Qwen2.5-14B-Instruct", "grpo.beta=0.0"), small_host)
    assert report.verdict == "does_not_fit"
    assert "host memory (DOES NOT FIT)" in report.to_text()
