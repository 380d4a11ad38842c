"""Every name, keyword, default, variable and metric key of another package that our engine code relies on.

A failure here after an upgrade says what to revisit. Sources are read, not run, so that CUDA-only code is covered too.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from spark_rl.engines.grpo_config import UNSLOTH_ONLY, Place, grpo_config_values
from spark_rl.host import machine_class
from spark_rl.metrics.catalogue import CATALOGUE
from spark_rl.recipe import list_profiles, resolve
from spark_rl.rollout.levers import environment, llm_arguments, standby_utilization
from spark_rl.rollout.server import NEWEST, OLDEST
from tests.engines.installed import fields, find, keywords_of_call, parameters, source

TRL_CONFIG = "trainer/grpo_config.py"
TRL_TRAINER = "trainer/grpo_trainer.py"
TRL_VLLM = "generation/vllm_generation.py"
ZOO_VLLM = "vllm_utils.py"


def asked() -> dict[str, object]:
    return grpo_config_values(resolve("3b-lora-24gb"), Path("out"), [1.0], {}, Place("plain", True))


def all_fields() -> dict[str, str | None]:
    return {
        **fields("transformers", "training_args.py", "TrainingArguments"),
        **fields("trl", "trainer/base_config.py", "_BaseConfig"),
        **fields("trl", TRL_CONFIG, "GRPOConfig"),
    }


# TRL: the config


def test_every_value_we_pass_is_a_field_of_grpo_config() -> None:
    assert set(asked()) - set(all_fields()) == set(UNSLOTH_ONLY)


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("generation_batch_size", "None"),
        ("delta", "None"),
        ("entropy_coef", "0.0"),
        ("use_adaptive_entropy", "False"),
        ("off_policy_mask_threshold", "None"),
        ("use_bias_correction_kl", "True"),
        ("use_transformers_continuous_batching", "False"),
        ("cache_implementation", "None"),
        ("vllm_tensor_parallel_size", "1"),
        ("vllm_model_impl", "'vllm'"),
        ("vllm_importance_sampling_mode", "'sequence_mask'"),
        ("vllm_importance_sampling_clip_max", "3.0"),
        ("router_aux_loss_coef", "None"),
        ("cast_lm_head_to_fp32", "False"),
        ("multi_objective_aggregation", "'sum_then_normalize'"),
        ("max_tool_calling_iterations", "None"),
    ],
)
def test_a_default_that_we_leave_alone_is_still_what_we_think(name: str, default: str) -> None:
    assert all_fields()[name] == default


def test_there_is_no_prompt_limit_in_trl() -> None:
    assert "max_prompt_length" not in all_fields()


# TRL: the colocated engine, as the canary and the extra arguments use it


def test_trl_builds_its_engine_by_the_name_that_we_wrap() -> None:
    assert "from vllm import LLM" in source("trl", TRL_VLLM)
    given = keywords_of_call("trl", TRL_VLLM, "LLM")
    ours = set(llm_arguments(resolve("3b-full-24gb"), machine_class("24"))) | {"kv_cache_memory_bytes"}
    assert not given & ours, "TRL passes one of our extra arguments itself now: use its field"
    assert {"enable_sleep_mode", "gpu_memory_utilization", "max_model_len", "max_num_seqs"} <= given


def test_trl_sleeps_at_level_two_and_wakes_weights_then_cache() -> None:
    text = source("trl", TRL_VLLM)
    assert text.count("self.llm.sleep(level=2)") == 2 and "sleep(level=1" not in text
    assert 'wake_up(tags=["weights"])' in text and 'wake_up(tags=["kv_cache"])' in text
    assert "_llm_weights_sleeping" in text


def test_trl_never_reloads_the_checkpoint_over_synced_weights() -> None:
    """In TRL up to 1.9 this made the sampler answer with the initial weights whenever sleep was on."""
    calls = re.findall(r"\.(?:collective_rpc\(\s*)?[\"']?reload_weights[\"']?\(", source("trl", TRL_VLLM))
    assert calls == []


def test_weights_are_pushed_through_load_weights_of_the_model_we_read() -> None:
    body = ast.unparse(find("trl", TRL_VLLM, "VLLMGeneration", "sync_weights"))
    assert "self.llm.llm_engine.model_executor.driver_worker.model_runner.model.load_weights(" in body


def test_generate_has_the_signature_that_the_canary_wraps() -> None:
    assert list(parameters("trl", TRL_VLLM, "VLLMGeneration", "generate")) == [
        "self",
        "prompts",
        "images",
        "num_generations",
        "profiler",
    ]
    body = ast.unparse(find("trl", TRL_VLLM, "VLLMGeneration", "generate"))
    assert "return (prompt_ids, completion_ids, logprobs, logprob_token_ids)" in body


def test_adapters_are_merged_pushed_and_unmerged_in_place() -> None:
    body = ast.unparse(find("trl", TRL_VLLM, "VLLMGeneration", "_iter_named_params"))
    assert body.index("merge_adapter()") < body.index("yield (name, param.data)") < body.index("unmerge_adapter()")


def test_weights_are_synced_when_the_step_changed() -> None:
    text = source("trl", TRL_TRAINER)
    assert text.count("self.vllm_generation.sync_weights()") == 2 and "self._last_loaded_step = -1" in text


def test_reward_functions_are_called_by_keyword_with_the_trainers_state() -> None:
    text = source("trl", TRL_TRAINER)
    assert '"trainer_state"' in text and "prompts=prompts" in text


def test_the_vllm_versions_that_trl_names_are_the_ones_we_check_a_server_for() -> None:
    low, high = re.findall(r'Version\("([\d.]+)"\)', source("trl", "import_utils.py"))[:2]
    assert (low, high) == (".".join(map(str, OLDEST)), ".".join(map(str, NEWEST)))


@pytest.mark.parametrize("route", ["/health", "/v1/models", "/get_world_size"])
def test_trls_client_asks_the_server_at_the_same_addresses(route: str) -> None:
    assert route in source("trl", "generation/vllm_client.py")


TRL_METRICS = [
    metric.key for metric in CATALOGUE if metric.key.split("/")[0] in ("completions", "clip_ratio", "sampling")
]
OURS = {"completions/terminated_share"}


@pytest.mark.parametrize(
    "key", [*TRL_METRICS, "reward", "reward_std", "frac_reward_zero_std", "kl", "entropy", "step_time"]
)
def test_a_metric_that_we_show_is_logged_by_trl_under_that_name(key: str) -> None:
    assert f'"{key}"' in source("trl", TRL_TRAINER) or key in OURS


# Transformers, torchao, PEFT


def test_stochastic_rounding_is_asked_for_through_optim_args_and_is_off_by_default() -> None:
    text = source("transformers", "trainer_optimizer.py")
    assert 'ctx.optim_args.get("bf16_stochastic_round", "False")' in text
    assert parameters("torchao", "optim/adam.py", "AdamW8bit", "__init__")["bf16_stochastic_round"] == "False"


def test_every_optimizer_of_a_profile_is_one_of_transformers() -> None:
    names = set(
        re.findall(r'^    [A-Z0-9_]+ = "(\w+)"', source("transformers", "training_args.py"), flags=re.MULTILINE)
    )
    assert {resolve(path.stem).grpo.optim for path in list_profiles()} <= names


def test_callbacks_have_the_moments_that_we_listen_to() -> None:
    for moment in ("on_train_begin", "on_pre_optimizer_step", "on_step_end", "on_log", "on_save"):
        find("transformers", "trainer_callback.py", "TrainerCallback", moment)


def test_the_optimizer_exists_when_training_begins() -> None:
    text = source("transformers", "trainer.py")
    begin = text.index("self.callback_handler.on_train_begin(")
    assert "create_optimizer_and_scheduler(" in text[:begin] or "_prepare_for_training" in text[:begin]


def test_peft_layers_tell_what_they_add() -> None:
    find("peft", "tuners/tuners_utils.py", "BaseTunerLayer")
    find("peft", "tuners/lora/layer.py", "Linear", "get_delta_weight")
    for name in ("merge_adapter", "unmerge_adapter"):
        find("peft", "tuners/tuners_utils.py", "BaseTuner", name)


# Unsloth


@pytest.mark.parametrize(
    ("variable", "file"),
    [
        ("UNSLOTH_VLLM_STANDBY", ("unsloth_zoo", ZOO_VLLM)),
        ("UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE", ("unsloth_zoo", ZOO_VLLM)),
        ("UNSLOTH_OFFLOAD_OPTIMIZER_STATE", ("unsloth", "models/_utils.py")),
        ("UNSLOTH_PARK_OPTIMIZER_DURING_ROLLOUT", ("unsloth", "models/rl.py")),
        ("UNSLOTH_DISABLE_STATISTICS", ("unsloth", "models/_utils.py")),
        ("PYTORCH_ALLOC_CONF", ("unsloth_zoo", "__init__.py")),
    ],
)
def test_a_variable_that_we_set_is_read_by_unsloth(variable: str, file: tuple[str, str]) -> None:
    lever = resolve("3b-lora-24gb", sets=['memory.alloc_conf="max_split_size_mb:64"'])
    assert variable in environment(lever, machine_class("24"))
    assert re.search(rf"[\"']{variable}[\"']", source(*file))


def test_standby_is_read_when_unsloth_is_imported() -> None:
    assert 'os.environ.get("UNSLOTH_VLLM_STANDBY", "0") == "0"' in source("unsloth_zoo", "__init__.py")


def test_a_switch_set_to_zero_is_off_for_unsloth() -> None:
    texts = source("unsloth_zoo", ZOO_VLLM) + source("unsloth", "models/_utils.py")
    for variable in ("UNSLOTH_VLLM_STANDBY", "UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE", "UNSLOTH_OFFLOAD_OPTIMIZER_STATE"):
        assert re.search(rf'"{variable}", "0"\) != "0"', texts)


@pytest.mark.parametrize(
    "name",
    [
        "model_name", "max_seq_length", "dtype", "load_in_4bit", "load_in_8bit", "full_finetuning", "revision",
        "use_gradient_checkpointing", "offload_embedding", "unsloth_tiled_mlp", "random_state", "fast_inference",
        "gpu_memory_utilization", "float8_kv_cache", "max_lora_rank", "load_in_fp8", "float32_mixed_precision",
    ],
)  # fmt: skip
def test_an_argument_of_from_pretrained_is_still_there(name: str) -> None:
    assert name in parameters("unsloth", "models/loader.py", "FastLanguageModel", "from_pretrained")


def test_engine_arguments_beyond_the_signature_are_passed_on() -> None:
    text = source("unsloth", "models/loader.py")
    passed = text[text.index("_VLLM_ENGINE_KWARGS = (") :]
    for name in ("enforce_eager", "enable_prefix_caching"):
        assert f'"{name}"' in passed[: passed.index(")")]
    assert "unsloth_vllm_standby" in source("unsloth", "models/llama.py")


def test_the_shared_engine_hangs_where_we_look_for_it() -> None:
    text = source("unsloth", "models/llama.py")
    assert "model.vllm_engine = " in text and "shared_weights = True" in source("unsloth_zoo", ZOO_VLLM) + text


def test_the_patched_trainer_is_named_as_we_check() -> None:
    assert "class _Unsloth{Trainer_name}" in source("unsloth", "models/rl.py") or "Unsloth{RLTrainer_name}" in source(
        "unsloth", "models/rl.py"
    )


@pytest.mark.parametrize("name", UNSLOTH_ONLY)
def test_a_field_that_only_unsloth_has_is_added_by_it(name: str) -> None:
    assert re.search(rf"{name} ?: ?Optional\[int\]", source("unsloth", "models/rl.py"))


@pytest.mark.parametrize("total_gib", [9, 11.6, 15.6, 23.5, 31.4, 79.2])
def test_the_share_that_standby_takes_is_unsloths(total_gib: float) -> None:
    """Their tiers, read from the branch for vLLM 0.11 and later, against ours."""
    text = source("unsloth_zoo", ZOO_VLLM)
    branch = text[text.index("# Lowered tiers for <= 24GB GPUs") :]
    branch = branch[: branch.index("standby_target_gpu_util *= ")]
    tiers = [
        (float(low), float(share)) for low, share in re.findall(r"ten_percent >= ([\d.]+): \w+ = ([\d.]+)", branch)
    ]
    lowest = float(re.findall(r"else: \w+ = ([\d.]+)", branch)[0])
    factor = float(re.findall(r"standby_target_gpu_util \*= ([\d.]+)", text)[0])
    theirs = next((share for low, share in tiers if total_gib * 0.1 >= low), lowest) * factor
    assert theirs == pytest.approx(standby_utilization(total_gib))


# vLLM, where a build of it is installed


@pytest.mark.vllm
def test_vllms_engine_takes_our_arguments() -> None:
    known = fields("vllm", "engine/arg_utils.py", "EngineArgs")
    assert {"dtype", "enforce_eager", "enable_prefix_caching", "kv_cache_dtype", "kv_cache_memory_bytes"} <= set(known)


@pytest.mark.vllm
def test_a_variable_that_we_set_for_the_cpu_build_is_read_by_it() -> None:
    variables = environment(resolve("cpu-tiny", sets=["rollout.kind=vllm_colocate"]), machine_class("cpu"))
    text = source("vllm", "envs.py")
    ours = [name for name in variables if name.startswith("VLLM_CPU_")]
    assert len(ours) == 2 and all(f'"{name}"' in text for name in ours)
    assert "nobind" in source("vllm", "utils/ompmultiprocessing.py")


@pytest.mark.vllm
def test_vllm_sleeps_by_level_and_wakes_by_tags() -> None:
    assert "level" in parameters("vllm", "entrypoints/llm.py", "LLM", "sleep")
    assert "tags" in parameters("vllm", "entrypoints/llm.py", "LLM", "wake_up")


@pytest.mark.vllm
def test_vllm_refuses_to_sleep_on_a_cpu() -> None:
    assert "Sleep mode is not supported on current platform." in source("vllm", "config/model.py")


@pytest.mark.vllm
def test_cpu_layers_ask_for_their_kernel_when_they_are_loaded() -> None:
    for file in ("model_executor/layers/linear.py", "model_executor/layers/vocab_parallel_embedding.py"):
        text = source("vllm", file)
        place = text.index("from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm")
        assert "def process_weights_after_loading" in text[:place]
    signature = parameters("vllm", "model_executor/layers/utils.py", "dispatch_cpu_unquantized_gemm")
    assert list(signature) == ["layer", "remove_weight"]


@pytest.mark.vllm
def test_the_engine_tells_its_vocabulary_where_we_look() -> None:
    assert "self.org_vocab_size = org_vocab_size or vocab_size" in source(
        "vllm", "model_executor/layers/logits_processor.py"
    )
    assert "packed_modules_mapping" in source("vllm", "model_executor/models/llama.py")


@pytest.mark.vllm
@pytest.mark.parametrize("route", ["/health", "/version"])
def test_the_server_answers_at_the_addresses_that_we_ask(route: str) -> None:
    folder = "entrypoints/serve/instrumentator"
    file = f"{folder}/{'health' if route == '/health' else 'basic'}.py"
    assert f'@router.get("{route}"' in source("vllm", file)


@pytest.mark.vllm
def test_weight_updates_are_a_developer_route() -> None:
    assert '"/get_world_size"' in source("vllm", "entrypoints/serve/dev/rlhf/api_router.py")
