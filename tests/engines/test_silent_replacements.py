"""What Unsloth, TRL and vLLM replace without an error: first that the library still does it, then that we say it or pass it.

The CUDA-only ones are read in the library's source; those that run here run for real in test_training.py.
"""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace as Fake
from typing import Any

import pytest

from spark_rl.engines.grpo_config import Place, differences, grpo_config_values, split_unknown
from spark_rl.errors import ConfigError, Refused
from spark_rl.host import machine_class
from spark_rl.recipe import Recipe, resolve
from spark_rl.rollout.levers import lever_notes
from spark_rl.rollout.plan import Plan, plan_rollout
from spark_rl.units import GIB
from tests.engines.installed import source, tree

RL = ("unsloth", "models/rl.py")
GPU = Place("unsloth", has_cuda=True)
CPU = Place("unsloth", has_cuda=False)


def recipe(*sets: str, profile: str = "3b-lora-24gb") -> Recipe:
    return resolve(profile, sets=sets)


def asked(loaded: Recipe | None = None, place: Place = GPU) -> dict[str, Any]:
    return grpo_config_values(loaded or recipe(), Path("out"), [1.0], {}, place)


def said(key: str, effective: Any, place: Place = GPU, **changes: Any) -> list[tuple[str, bool]]:
    """(key, has a known reason) of what we say when the built config holds `effective`."""
    values = {**asked(place=place), **changes}
    found = differences(values, Fake(**{**values, key: effective}), place)
    return [(one.key, one.reason is not None) for one in found]


# defaults that Unsloth puts in the place of TRL's


def unsloths_defaults() -> dict[str, Any]:
    """The two tables of replaced defaults, out of the function that writes them."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree(*RL)):
        is_table = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "replacements"
        if is_table and isinstance(node.value, ast.Dict):
            found |= ast.literal_eval(node.value)
    assert found, "the tables of replaced defaults have moved"
    return found


NOT_OURS = {
    "per_device_eval_batch_size": "there is no evaluation inside training",
    "eval_accumulation_steps": "there is no evaluation inside training",
    "include_tokens_per_second": "only logged",
    "include_num_input_tokens_seen": "only logged",
    "auto_find_batch_size": "off in both",
    "max_seq_length": "no field of GRPOConfig; the model's is read back",
    "padding_free": "no field of GRPOConfig",
}
"""Replaced defaults that we leave alone, and why."""


def test_every_default_that_unsloth_replaces_is_passed_explicitly_or_does_not_matter() -> None:
    theirs = {*unsloths_defaults(), "warmup_steps"}
    assert theirs - set(asked()) == set(NOT_OURS)


@pytest.mark.parametrize(
    ("key", "theirs"), [("learning_rate", 5e-05), ("optim", "adamw_8bit"), ("seed", 3407), ("beta", None)]
)
def test_a_replaced_default_is_still_what_the_facts_say(key: str, theirs: Any) -> None:
    assert unsloths_defaults()[key] == theirs


def test_correction_for_the_samplers_numerics_is_switched_off_by_unsloth_and_on_by_us() -> None:
    assert unsloths_defaults()["vllm_importance_sampling_correction"] is False
    assert asked()["vllm_importance_sampling_correction"] is True


# rewriting of explicit values


def test_dr_grpos_scaling_is_overridden_and_that_stops_the_run() -> None:
    assert "scale_rewards = False" in source(*RL)
    assert said("scale_rewards", False, scale_rewards="group") == [("scale_rewards", False)]


@pytest.mark.parametrize(
    ("key", "line"),
    [("mask_truncated_completions", "mask_truncated_completions = True"), ("epsilon_high", "epsilon_high = 0.28")],
)
def test_dapos_settings_are_filled_in_only_where_none_was_passed(key: str, line: str) -> None:
    text = source(*RL)
    assert line in text and f"if {key} is None" in text
    assert asked()[key] is not None


def test_ciscos_bound_is_filled_in_only_where_none_was_passed() -> None:
    assert "epsilon_high = 5.0" in source(*RL) and asked()["epsilon_high"] is not None


def test_a_beta_of_none_would_be_filled_in() -> None:
    assert "else 0.001" in source(*RL) and asked()["beta"] is not None


def test_the_batch_size_is_rounded_up_by_unsloth_and_refused_by_us() -> None:
    assert "per_device_train_batch_size = num_generations" in source(*RL)
    with pytest.raises(ConfigError, match="silently train with"):
        recipe("grpo.per_device_train_batch_size=3", "grpo.gradient_accumulation_steps=1")


def test_a_replaced_batch_size_stops_the_run() -> None:
    assert said("per_device_train_batch_size", 16) == [("per_device_train_batch_size", False)]


def test_saving_is_switched_off_without_an_output_folder_and_we_always_pass_one() -> None:
    assert "save_strategy = 'no'" in source(*RL)
    assert asked()["output_dir"] == "out" and said("save_strategy", "no") == [("save_strategy", False)]


def test_reentrant_checkpointing_is_forced_and_said() -> None:
    assert "use_reentrant" in source(*RL)
    assert said("gradient_checkpointing_kwargs", {"use_reentrant": True}) == [("gradient_checkpointing_kwargs", True)]


def test_top_k_is_rewritten_for_the_shared_engine_and_said() -> None:
    assert said("top_k", -1) == [("top_k", True)]


def test_an_unknown_keyword_is_dropped_with_a_print_and_stops_the_run() -> None:
    assert "dropped" in source("unsloth", "models/rl_config_compat.py")
    _, lost = split_unknown({"max_prompt_length": 512}, field_names={"learning_rate"})
    assert [(one.key, one.reason) for one in lost] == [("max_prompt_length", None)]


def test_chunking_that_stock_trl_lacks_is_said() -> None:
    _, lost = split_unknown({"unsloth_grpo_mini_batch": 4}, field_names=set())
    assert [one.key for one in lost] == ["unsloth_grpo_mini_batch"] and lost[0].reason


def test_a_peft_config_for_the_trainer_is_ignored_by_unsloth_so_it_is_never_passed() -> None:
    from spark_rl.rollout import plan

    engine = (Path(plan.__file__).parents[1] / "engines" / "unsloth_engine.py").read_text()
    assert "get_peft_model" in engine and "def _peft_config" not in engine


# optimizers on a CPU


def test_eight_bit_optimizers_become_torchs_on_a_cpu_and_that_is_said_twice() -> None:
    assert "adamw_torch_fused" in source("unsloth_zoo", "cpu/trainer.py")
    assert said("optim", "adamw_torch_fused", CPU, optim="adamw_8bit") == [("optim", True)]
    notes = lever_notes(recipe("grpo.optim=adamw_8bit", profile="cpu-tiny"), machine_class("cpu"))
    assert [note.key for note in notes] == ["grpo.optim"]


def test_another_optimizer_on_a_gpu_stops_the_run() -> None:
    assert said("optim", "adamw_torch_fused", GPU, optim="adamw_8bit") == [("optim", False)]


# the engine


def test_fast_inference_is_switched_off_on_gb10_with_a_print_and_refused_by_us() -> None:
    text = source("unsloth", "models/loader.py")
    place = text.index('"NVIDIA GB10"')
    assert "fast_inference = False" in text[place : place + 500]
    with pytest.raises(Refused, match="GB10"):
        plan_rollout(recipe(), machine_class("dgx-spark"))


def test_standby_overrides_utilisation_with_a_print_and_we_say_it_before_the_run() -> None:
    assert "Standby mode is enabled. Changing `gpu_memory_utilization`" in source("unsloth_zoo", "vllm_utils.py")
    notes = list(lever_notes(recipe("vllm.gpu_memory_utilization=0.5"), machine_class("24")))
    assert [note.key for note in notes] == ["vllm.gpu_memory_utilization"]


def test_unknown_engine_arguments_are_dropped_with_a_print() -> None:
    assert "is not supported in vLLM. Skipping." in source("unsloth_zoo", "vllm_utils.py")


# read back from what was built


class Config:
    """The parts of vLLM's configuration that we read."""

    def __init__(self, **changes: Any) -> None:
        values = {
            "enable_sleep_mode": True,
            "dtype": "torch.bfloat16",
            "enforce_eager": False,
            "max_model_len": 1536,
            **changes,
        }
        self.model_config = Fake(hf_config=Fake(eos_token_id=2), try_get_generation_config=dict, **values)
        self.cache_config = Fake(
            enable_prefix_caching=changes.get("enable_prefix_caching", True),
            cache_dtype=changes.get("cache_dtype", "auto"),
            gpu_memory_utilization=changes.get("gpu_memory_utilization", 0.3),
            kv_cache_memory_bytes=changes.get("kv_cache_memory_bytes"),
        )


def engine_differences(loaded: Recipe, sleeps: bool = True, **changes: Any) -> dict[str, bool]:
    from spark_rl.engines.read_back import _engine

    plan: Plan = plan_rollout(loaded, machine_class("24"))
    llm = Fake(llm_engine=Fake(vllm_config=Config(**changes)), shared_weights=plan.route.name == "shared")
    trainer = Fake(vllm_generation=Fake(llm=llm, enable_sleep_mode=sleeps))
    _, found = _engine(trainer, Fake(vllm_engine=llm), loaded, plan, GPU)
    return {one.key: one.reason is not None for one in found}


COLOCATE = ("rollout.kind=vllm_colocate", "vllm.gpu_memory_utilization=0.3", "vllm.standby=false")


def test_an_engine_as_asked_has_no_difference() -> None:
    assert engine_differences(recipe(*COLOCATE)) == {}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"enable_sleep_mode": False}, "vllm.sleep"),
        ({"sleeps": False}, "vllm.sleep"),
        ({"dtype": "torch.float16"}, "model.dtype (engine)"),
        ({"enforce_eager": True}, "vllm.enforce_eager"),
        ({"enable_prefix_caching": False}, "vllm.enable_prefix_caching"),
        ({"gpu_memory_utilization": 0.9}, "vllm.gpu_memory_utilization"),
    ],
)
def test_an_engine_setting_that_was_dropped_stops_the_run(changes: dict[str, Any], key: str) -> None:
    assert engine_differences(recipe(*COLOCATE), **changes) == {key: False}


def test_an_fp8_cache_that_was_not_taken_stops_the_run() -> None:
    assert engine_differences(recipe(*COLOCATE, "vllm.kv_cache_dtype=fp8")) == {"vllm.kv_cache_dtype": False}


def test_standbys_utilisation_is_known_when_read_back() -> None:
    found = engine_differences(recipe("vllm.gpu_memory_utilization=0.5"), gpu_memory_utilization=0.784)
    assert found == {"vllm.gpu_memory_utilization": True}


def test_a_variable_that_a_library_changed_back_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsloth writes UNSLOTH_VLLM_STANDBY = 0 by itself for vision models."""
    from spark_rl.engines.read_back import _environment

    assert 'os.environ["UNSLOTH_VLLM_STANDBY"] = "0"' in source("unsloth_zoo", "vllm_utils.py")
    plan = plan_rollout(recipe(), machine_class("24"))
    for key, value in plan.environment.items():
        monkeypatch.setenv(key, value)
    assert _environment(Fake(), Fake(), recipe(), plan, GPU)[1] == []
    monkeypatch.setenv("UNSLOTH_VLLM_STANDBY", "0")
    found = _environment(Fake(), Fake(), recipe(), plan, GPU)[1]
    assert [(one.key, one.reason) for one in found] == [("environment UNSLOTH_VLLM_STANDBY", None)]


def test_optimizer_state_that_stayed_on_the_device_stops_the_run() -> None:
    from spark_rl.engines.read_back import state_differences

    asked = recipe("memory.offload_optimizer_state=true")
    assert state_differences({"cpu pinned float32": 1000, "cuda float32": 4}, asked, GPU) == []
    found = state_differences({"cuda float32": 1000}, asked, GPU)
    assert [one.key for one in found] == ["memory.offload_optimizer_state"] and found[0].reason is None


def test_a_missing_engine_stops_the_run() -> None:
    from spark_rl.engines.read_back import _engine

    for sets in (COLOCATE, ()):
        loaded = recipe(*sets)
        plan = plan_rollout(loaded, machine_class("24"))
        _, found = _engine(Fake(), Fake(), loaded, plan, GPU)
        assert [(one.key, one.reason) for one in found] == [("rollout.kind", None)]


def test_a_shorter_model_than_asked_stops_the_run() -> None:
    from spark_rl.engines.read_back import _lengths

    assert "max_seq_length" in source("unsloth_zoo", "vllm_utils.py")
    loaded = recipe()
    _, found = _lengths(Fake(), Fake(max_seq_length=512), loaded, Fake(), GPU)
    assert [(one.key, one.effective, one.reason) for one in found] == [("model.max_seq_length", 512, None)]


def test_stock_trl_in_place_of_the_patched_trainer_stops_the_run_on_a_gpu_and_is_known_on_a_cpu() -> None:
    pytest.importorskip("trl")
    from spark_rl.engines.read_back import _classes

    assert "so training will use trl's own trainer instead" in source(*RL)
    reasons = [_classes(Fake(), Fake(), recipe(), Fake(), place)[1][0].reason for place in (GPU, CPU)]
    assert reasons[0] is None and reasons[1] is not None


def test_a_sampler_that_stops_at_other_tokens_stops_the_run() -> None:
    from spark_rl.engines.read_back import _stop_tokens

    trainer = Fake(processing_class=Fake(eos_token_id=7, chat_template=None), vllm_generation=None)
    for ends, faults in ((7, 0), ([7, 9], 0), (9, 1)):
        _, found = _stop_tokens(trainer, Fake(generation_config=Fake(eos_token_id=ends)), recipe(), Fake(), GPU)
        assert len(found) == faults


def layer(wrapped: bool) -> Fake:
    return Fake(weight=1, lora_A=1) if wrapped else Fake(weight=1)


def test_a_target_that_was_not_wrapped_stops_the_run() -> None:
    from spark_rl.engines.read_back import _adapters

    targets = recipe().lora.target_modules
    whole = [(f"layers.{index}.{target}", layer(True)) for index in range(2) for target in targets]
    partial = [(name, layer(name != "layers.1.q_proj")) for name, _ in whole]
    results = [
        _adapters(Fake(), Fake(named_modules=lambda m=modules: m), recipe(), Fake(), GPU)[1]
        for modules in (whole, partial)
    ]
    assert results[0] == [] and [one.key for one in results[1]] == ["lora.target_modules: q_proj"]


def test_an_adapter_of_another_rank_stops_the_run() -> None:
    from spark_rl.engines.read_back import _adapters

    modules = [(target, layer(True)) for target in recipe().lora.target_modules]
    for rank, faults in ((recipe().lora.r, []), (4, ["lora.r"])):
        model = Fake(named_modules=lambda: modules, peft_config={"default": Fake(r=rank)})
        assert [one.key for one in _adapters(Fake(), model, recipe(), Fake(), GPU)[1]] == faults


def built_model(tiled: bool = False, embedding_device: str = "cuda", checkpointing: bool = True) -> Fake:
    mlp = Fake(_unsloth_forward=1) if tiled else Fake()
    embedding = Fake(weight=Fake(device=Fake(type=embedding_device)))
    head = Fake(weight=Fake(device=Fake(type="cuda")))
    return Fake(
        modules=lambda: [mlp],
        get_input_embeddings=lambda: embedding,
        get_output_embeddings=lambda: head,
        is_gradient_checkpointing=checkpointing,
    )


def memory_differences(model: Fake, place: Place, monkeypatch: pytest.MonkeyPatch, *sets: str) -> list[str]:
    pytest.importorskip("torch")
    from spark_rl.engines import read_back

    monkeypatch.setattr(read_back, "memory_cap_bytes", lambda: 24 * GIB)
    _, found = read_back._memory(Fake(), model, recipe(*sets), Fake(), place)
    assert all(one.reason is None for one in found)
    return [one.key for one in found]


def test_memory_levers_that_took_effect_are_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = ("memory.unsloth_tiled_mlp=true", "memory.offload_embedding=true", "memory.memory_cap_gib=24")
    assert memory_differences(built_model(True, "cpu"), GPU, monkeypatch, *sets) == []
    assert memory_differences(built_model(), GPU, monkeypatch) == []


def test_tiling_that_was_not_applied_and_tiling_that_nobody_asked_for_stop_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "mlp_module._unsloth_forward = forward" in source("unsloth_zoo", "tiled_mlp.py")
    key = "memory.unsloth_tiled_mlp"
    assert memory_differences(built_model(), GPU, monkeypatch, f"{key}=true") == [key]
    assert memory_differences(built_model(tiled=True), GPU, monkeypatch) == [key]


def test_an_embedding_that_is_not_where_it_was_asked_for_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "memory.offload_embedding"
    assert memory_differences(built_model(), GPU, monkeypatch, f"{key}=true", "rollout.kind=native") == [key]
    assert memory_differences(built_model(embedding_device="cpu"), GPU, monkeypatch) == [key]


def test_an_embedding_that_unsloth_declines_to_move_is_said_and_does_not_stop_the_run() -> None:
    pytest.importorskip("torch")
    from spark_rl.engines.read_back import why_embedding_stays

    assert "incompatible with fast_inference" in source("unsloth", "models/llama.py")
    assert "this model ties embed_tokens to lm_head" in source("unsloth", "models/vision.py")
    assert "vLLM" in str(why_embedding_stays(built_model(), recipe("rollout.kind=unsloth_vllm")))
    assert why_embedding_stays(built_model(), recipe("rollout.kind=native")) is None
    tied = built_model()
    tied.get_output_embeddings = tied.get_input_embeddings
    assert "tied" in str(why_embedding_stays(tied, recipe("rollout.kind=native")))
    shared = recipe("rollout.kind=unsloth_vllm", "memory.offload_embedding=true")
    assert "memory.offload_embedding" in [note.key for note in lever_notes(shared, machine_class("24"))]


def test_a_memory_cap_that_is_not_in_force_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "_C._cuda_getMemoryFraction" in source("torch", "cuda/memory.py")
    key = "memory.memory_cap_gib"
    assert memory_differences(built_model(), GPU, monkeypatch, f"{key}=20") == [key]


def test_checkpointing_that_is_off_in_the_plain_engine_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place("plain", has_cuda=True)
    assert memory_differences(built_model(checkpointing=False), place, monkeypatch) == ["memory.gradient_checkpointing"]


def test_optimizer_state_that_was_not_parked_stops_the_run() -> None:
    pytest.importorskip("torch")
    from spark_rl.engines.read_back import parking

    text = source(*RL)
    assert '"UNSLOTH_PARK_OPTIMIZER_DURING_ROLLOUT", "0"' in text and "self._unsloth_park_count = " in text
    asked_for = recipe("memory.park_optimizer_during_rollout=true", "memory.offload_optimizer_state=false")
    assert parking(Fake(_unsloth_park_count=1), asked_for, GPU)[1] == []
    (found,) = parking(Fake(), asked_for, GPU)[1]
    assert (found.key, found.reason) == ("memory.park_optimizer_during_rollout", None)


def test_the_shell_cannot_switch_tiling_on_behind_the_recipe() -> None:
    assert '"UNSLOTH_TILED_MLP", "arctic" if unsloth_tiled_mlp else "0"' in source("unsloth", "models/loader.py")
    for on, value in (("true", "arctic"), ("false", "0")):
        plan = plan_rollout(recipe(f"memory.unsloth_tiled_mlp={on}"), machine_class("24"))
        assert plan.environment["UNSLOTH_TILED_MLP"] == value


def test_adapters_of_a_four_bit_base_are_cast_to_bf16_by_trl_and_that_is_said() -> None:
    torch = pytest.importorskip("torch")
    from spark_rl.engines.read_back import _dtypes

    assert "param.data = param.data.to(torch.bfloat16)" in source("trl", "trainer/grpo_trainer.py")
    weight = torch.nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
    model = Fake(parameters=lambda: [weight], get_output_embeddings=lambda: None)
    trainer = Fake(accelerator=Fake(device="cuda"))
    reasons = []
    for profile in ("3b-qlora-12gb", "3b-lora-24gb"):
        _, found = _dtypes(trainer, model, recipe(profile=profile), Fake(), GPU)
        reasons.append([one.reason is not None for one in found])
    assert reasons == [[True], [False]]


def test_stochastic_rounding_that_is_not_on_stops_the_run() -> None:
    from spark_rl.engines.read_back import _optimizer

    loaded = recipe(profile="3b-full-24gb")
    args = Fake(optim="adamw_torch_8bit")

    class AdamW8bit:
        def __init__(self, rounds: bool) -> None:
            self.bf16_stochastic_round = rounds

    found = [
        _optimizer(Fake(optimizer=AdamW8bit(rounds), args=args), Fake(), loaded, Fake(), GPU)[1]
        for rounds in (True, False)
    ]
    assert found[0] == [] and [one.key for one in found[1]] == ["tuning.master_weights"]


def test_stochastic_rounding_is_asked_for_under_transformers_name() -> None:
    assert asked(recipe(profile="3b-full-24gb"))["optim_args"] == "bf16_stochastic_round=True"
    assert asked(recipe())["optim_args"] is None
