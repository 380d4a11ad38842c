"""From a recipe to TRL's GRPOConfig, and back: what is asked is compared with what the library really set.

Unsloth and TRL both have defaults of their own for many of these fields, so every one is passed explicitly.
Pure functions of plain values; the config object is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_rl.engines.base import Difference
from spark_rl.recipe import Recipe


@dataclass(frozen=True)
class Place:
    """Where the engine runs, as far as settings depend on it."""

    engine: str
    has_cuda: bool


def grpo_config_values(
    recipe: Recipe, output_dir: Path, reward_weights: list[float], chat_template_kwargs: Mapping[str, Any], place: Place
) -> dict[str, Any]:
    """Keyword arguments for GRPOConfig. Every value that a library would default differently is here."""
    grpo, vllm, memory = recipe.grpo, recipe.vllm, recipe.memory
    colocate = recipe.rollout.kind in ("unsloth_vllm", "vllm_colocate")
    server = recipe.rollout.kind == "vllm_server"
    checkpointing = memory.gradient_checkpointing != "off"
    return {
        "output_dir": str(output_dir),
        "per_device_train_batch_size": grpo.per_device_train_batch_size,
        "gradient_accumulation_steps": grpo.gradient_accumulation_steps,
        "steps_per_generation": recipe.steps_per_generation,
        "num_generations": grpo.num_generations,
        "max_completion_length": grpo.max_completion_length,
        "temperature": grpo.temperature,
        "top_p": grpo.top_p,
        "top_k": grpo.top_k,
        "min_p": grpo.min_p,
        "repetition_penalty": grpo.repetition_penalty,
        "generation_kwargs": None,
        "chat_template_kwargs": dict(chat_template_kwargs) or None,
        "learning_rate": grpo.learning_rate,
        "beta": grpo.beta,
        "num_iterations": grpo.num_iterations,
        "max_steps": grpo.max_steps,
        "loss_type": grpo.loss_type,
        "scale_rewards": grpo.scale_rewards,
        "importance_sampling_level": grpo.importance_sampling_level,
        "epsilon": grpo.epsilon,
        "epsilon_high": grpo.epsilon_high,
        "mask_truncated_completions": grpo.mask_truncated_completions,
        "vllm_importance_sampling_correction": grpo.vllm_importance_sampling_correction,
        "top_entropy_quantile": 1.0,
        # Mixtures of experts: GRPO's loss alone. Unsloth's forward does not compute the other, so both engines train alike.
        "router_aux_loss_coef": 0.0,
        "disable_dropout": False,
        "sync_ref_model": False,
        "shuffle_dataset": True,
        "remove_unused_columns": False,
        "reward_weights": reward_weights,
        "optim": grpo.optim,
        "optim_args": optim_arguments(recipe),
        "weight_decay": grpo.weight_decay,
        "adam_beta1": grpo.adam_beta1,
        "adam_beta2": grpo.adam_beta2,
        "adam_epsilon": grpo.adam_epsilon,
        "lr_scheduler_type": grpo.lr_scheduler_type,
        "warmup_steps": grpo.warmup_steps,
        "max_grad_norm": grpo.max_grad_norm,
        "seed": grpo.seed,
        "data_seed": grpo.seed,
        "bf16": grpo.bf16,
        "fp16": False,
        "use_cpu": not place.has_cuda,
        "gradient_checkpointing": checkpointing,
        "gradient_checkpointing_kwargs": {"use_reentrant": False} if checkpointing else None,
        "use_liger_kernel": memory.use_liger_kernel,
        "use_vllm": colocate or server,
        "vllm_mode": "server" if server else "colocate",
        "vllm_server_base_url": recipe.rollout.server_base_url,
        "vllm_enable_sleep_mode": colocate and vllm.sleep,
        "vllm_gpu_memory_utilization": vllm.gpu_memory_utilization,
        "vllm_max_model_length": vllm.max_model_len,
        "unsloth_grpo_mini_batch": memory.unsloth_grpo_mini_batch,
        "unsloth_logit_chunk_multiplier": memory.unsloth_logit_chunk_multiplier,
        "logging_steps": grpo.logging_steps,
        "logging_first_step": False,
        "logging_nan_inf_filter": False,
        "log_completions": False,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "steps",
        "save_steps": grpo.save_steps,
        "save_total_limit": grpo.save_total_limit,
        "save_only_model": False,
        "eval_strategy": "no",
        "torch_empty_cache_steps": None,
        "dataloader_pin_memory": place.has_cuda,
        "dataloader_num_workers": 0,
    }


def optim_arguments(recipe: Recipe) -> str | None:
    """Transformers' switch for torchao's stochastic rounding, which is off unless it is asked for."""
    if recipe.tuning.method == "full" and recipe.tuning.master_weights == "stochastic":
        return "bf16_stochastic_round=True"
    return None


UNSLOTH_ONLY = ("unsloth_grpo_mini_batch", "unsloth_logit_chunk_multiplier")
"""Fields that exist only on the GRPOConfig that Unsloth patches on CUDA."""


def split_unknown(values: Mapping[str, Any], field_names: set[str]) -> tuple[dict[str, Any], list[Difference]]:
    """Values the config class has a field for, and a Difference for each that was asked for without one."""
    known = {key: value for key, value in values.items() if key in field_names}
    lost = [
        Difference(key, value, None, "stock TRL has no such field: chunking needs the unsloth engine on CUDA")
        if key in UNSLOTH_ONLY
        else Difference(key, value, None, None)
        for key, value in values.items()
        if key not in field_names and value is not None
    ]
    return known, lost


def _is_8bit_or_paged(optim: str) -> bool:
    return any(part in optim for part in ("8bit", "paged", "bnb"))


KNOWN_REPLACEMENTS: tuple[tuple[str, Callable[[Any, Any, Place], bool], str], ...] = (
    (
        "optim",
        lambda asked, effective, place: (
            place.engine == "unsloth"
            and not place.has_cuda
            and effective in ("adamw_torch_fused", "adamw_torch")
            and (_is_8bit_or_paged(str(asked)) or str(asked).startswith("adamw_torch"))
        ),
        "Unsloth's CPU backend has no 8-bit or paged optimizers and uses torch's fused AdamW",
    ),
    (
        "bf16",
        lambda asked, effective, place: place.engine == "unsloth" and not place.has_cuda and asked and not effective,
        "this processor has no native bf16; Unsloth's CPU backend computes in fp32",
    ),
    (
        "gradient_checkpointing_kwargs",
        lambda asked, effective, place: place.engine == "unsloth" and place.has_cuda,
        "Unsloth patches checkpointing itself and needs the reentrant form",
    ),
    (
        "top_k",
        lambda asked, effective, place: place.engine == "unsloth" and place.has_cuda and asked == 0 and effective == -1,
        "vLLM writes off as -1",
    ),
)
"""(field, condition, reason): replacements that are known, harmless, and said."""


def differences(asked: Mapping[str, Any], config: Any, place: Place) -> list[Difference]:
    """Every field whose value on the built config is not the one asked for."""
    found = []
    for key, value in asked.items():
        effective = plain(getattr(config, key))
        if _same(plain(value), effective):
            continue
        reasons = [why for field, holds, why in KNOWN_REPLACEMENTS if field == key and holds(value, effective, place)]
        found.append(Difference(key, value, effective, reasons[0] if reasons else None))
    return found


def plain(value: Any) -> Any:
    """Enums as their value, tuples as lists: comparable and storable as JSON."""
    if hasattr(value, "value") and type(value).__module__.startswith("transformers"):
        return value.value
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, str | int | float | bool | list | dict) or value is None:
        return value
    return str(value)


def _same(asked: Any, effective: Any) -> bool:
    if asked == effective:
        return True
    # TRL stores "no reporting" as an empty list.
    return bool(asked == "none" and effective == [])
