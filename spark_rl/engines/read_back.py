"""What was really built, read from the libraries' objects once the optimizer exists: values, and differences from the recipe.

A difference with a reason is known and said; one without stops the run. Nothing is changed here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from spark_rl.engines.base import Difference
from spark_rl.engines.grpo_config import Place
from spark_rl.recipe import Recipe
from spark_rl.rollout.plan import Plan
from spark_rl.units import GIB

FULL_PRECISION = "float32"


def read_back(trainer: Any, recipe: Recipe, plan: Plan, place: Place) -> tuple[dict[str, Any], list[Difference]]:
    """Values for effective.json, and every difference beyond the fields of GRPOConfig."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    readers = (_environment, _classes, _lengths, _dtypes, _adapters, _memory, _optimizer, _engine, _stop_tokens)
    values: dict[str, Any] = {}
    found: list[Difference] = []
    for reader in readers:
        more, differing = reader(trainer, model, recipe, plan, place)
        values |= more
        found += differing
    return values, found


Answer = tuple[dict[str, Any], list[Difference]]


def _environment(trainer: Any, model: Any, recipe: Recipe, plan: Plan, place: Place) -> Answer:
    """The libraries set some of these variables themselves."""
    now = {key: os.environ.get(key) for key in plan.environment}
    return {"environment": now}, [
        Difference(f"environment {key}", asked, now[key], None)
        for key, asked in plan.environment.items()
        if now[key] != asked
    ]


def _classes(trainer: Any, model: Any, recipe: Recipe, plan: Plan, place: Place) -> Answer:
    import trl

    values = {
        "trainer_class": f"{type(trainer).__module__}.{type(trainer).__qualname__}",
        "model_class": f"{type(model).__module__}.{type(model).__qualname__}",
        "trl.GRPOTrainer": trl.GRPOTrainer.__name__,
    }
    name = type(trainer).__name__
    if place.engine != "unsloth" or "Unsloth" in name:
        return values, []
    why = None if place.has_cuda else "on a machine without a GPU Unsloth trains with TRL's own trainer"
    return values, [Difference("trainer_class", "UnslothGRPOTrainer", name, why)]


def _lengths(trainer: Any, model: Any, recipe: Recipe, plan: Plan, place: Place) -> Answer:
    asked, effective = recipe.model.max_seq_length, getattr(model, "max_seq_length", None)
    if effective is None or effective >= asked:
        return {"max_seq_length": effective}, []
    return {"max_seq_length": effective}, [Difference("model.max_seq_length", asked, effective, None)]


def dtype_counts(parameters: Sequence[Any]) -> dict[str, int]:
    """Number of weights per dtype."""
    counts: Counter[str] = Counter()
    for parameter in parameters:
        counts[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    return dict(counts)


def _dtypes(trainer: Any, model: Any, recipe: Recipe, plan: Plan, place: Place) -> Answer:
    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    head = model.get_output_embeddings()
    values = {
        "device": str(trainer.accelerator.device),
        "num_parameters": sum(parameter.numel() for parameter in parameters),
        "num_trained_parameters": sum(parameter.numel() for parameter in trained),
        "dtypes": dtype_counts(parameters),
        "trained_dtypes": dtype_counts(trained),
        "lm_head_dtype": None if head is None else str(head.weight.dtype).removeprefix("torch."),
    }
    wanted = trained_dtype(recipe)
    found = []
    for dtype in values["trained_dtypes"]:
        if dtype == wanted:
            continue
        narrow = recipe.tuning.method == "qlora" and dtype == "bfloat16"
        why = "TRL casts the adapters of a 4-bit base to bf16; their movement is measured" if narrow else None
        found.append(Difference("trained weights", wanted, dtype, why))
    return values, found


def trained_dtype(recipe: Recipe) -> str:
    """Adapters are fp32; full fine-tuning trains what `tuning.master_weights` says."""
    if recipe.tuning.method != "full" or recipe.tuning.master_weights == "fp32":
        return FULL_PRECISION
    return recipe.model.dtype


def _adapters(trainer: Any, model: Any, recipe: Recipe, plan: Plan, place: Place) -> Answer:
    if recipe.tuning.method == "full":
        return {"lora_wrapped": None}, []
    asked = recipe.lora.target_modules
    wrapped: Counter[str] = Counter()
    present: Counter[str] = Counter()
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        if last in asked and (hasattr(module, "lora_A") or hasattr(module, "weight")):
            present[last] += 1
            wrapped[last] += hasattr(module, "lora_A")
    found = [
        Difference(f"lora.target_modules: {target}", present[target] or "a layer", wrapped[target], None)
        for target in asked
        if wrapped[target] != present[target] or not present[target]
    ]
    ranks = {int(config.r) for config in (getattr(model, "peft_config", None) or {}).values()}
    if ranks and ranks != {recipe.lora.r}:
        found.append(Difference("lora.r", recipe.lora.r, sorted(ranks), None))
    return {"lora_wrapped": dict(wrapped), "lora_ranks": sorted(ranks)}, found


def _memory(trainer: Any, model: Any, recipe: Recipe, plan: Plan, place: Place) -> Answer:
    """The levers of [memory] that show on the built model and in the allocator."""
    asked = recipe.memory
    embedding = model.get_input_embeddings().weight.device.type
    values: dict[str, Any] = {
        # Unsloth's patch keeps the forward that it splits up under this name.
        "num_tiled_mlp": sum(hasattr(module, "_unsloth_forward") for module in model.modules()),
        "input_embedding_device": embedding,
        "gradient_checkpointing_on": bool(getattr(model, "is_gradient_checkpointing", False)),
        "memory_cap_bytes": memory_cap_bytes() if place.has_cuda else None,
    }
    found = []
    on_gpu = place.has_cuda and place.engine == "unsloth"
    if on_gpu and bool(values["num_tiled_mlp"]) != asked.unsloth_tiled_mlp:
        found.append(
            Difference("memory.unsloth_tiled_mlp", asked.unsloth_tiled_mlp, f"{values['num_tiled_mlp']} layers", None)
        )
    if on_gpu and (embedding == "cpu") != asked.offload_embedding:
        why = why_embedding_stays(model, recipe) if asked.offload_embedding else None
        found.append(Difference("memory.offload_embedding", asked.offload_embedding, f"on {embedding}", why))
    # Unsloth switches it around every rollout, so that only there a reading says nothing.
    checkpoints = asked.gradient_checkpointing != "off"
    if place.engine == "plain" and values["gradient_checkpointing_on"] != checkpoints:
        found.append(
            Difference(
                "memory.gradient_checkpointing", asked.gradient_checkpointing, values["gradient_checkpointing_on"], None
            )
        )
    cap = values["memory_cap_bytes"]
    if cap is not None and asked.memory_cap_gib and cap > asked.memory_cap_gib * GIB * 1.001:
        found.append(Difference("memory.memory_cap_gib", asked.memory_cap_gib, round(cap / GIB, 3), None))
    return values, found


def why_embedding_stays(model: Any, recipe: Recipe) -> str | None:
    """Where Unsloth declines to move the input embedding, with a sentence on the screen only."""
    if recipe.rollout.kind == "unsloth_vllm":
        return "Unsloth's own vLLM reads the embedding on the GPU"
    head = model.get_output_embeddings()
    if head is not None and head.weight is model.get_input_embeddings().weight:
        return "the embedding is the output layer too (tied), so that moving it would free nothing"
    return None


def memory_cap_bytes() -> int:
    """What the allocator lets this process take of the device."""
    total = torch.cuda.get_device_properties(0).total_memory
    return int(torch.cuda.get_per_process_memory_fraction(0) * total)


OPTIMIZER_WORDS = {
    "adamw_8bit": "8bit",
    "adamw_bnb_8bit": "8bit",
    "paged_adamw_8bit": "8bit",
    "adamw_torch_8bit": "8bit",
}


def _optimizer(trainer: Any, model: Any, recipe: Recipe, plan: Plan, place: Place) -> Answer:
    built = trainer.optimizer
    inner = getattr(built, "optimizer", built)
    if inner is None:
        return {"optimizer_class": None}, []
    name = f"{type(inner).__module__}.{type(inner).__qualname__}"
    rounds = getattr(inner, "bf16_stochastic_round", None)
    values = {"optimizer_class": name, "bf16_stochastic_round": rounds}
    found = []
    if recipe.tuning.method == "full" and recipe.tuning.master_weights == "stochastic" and not rounds:
        why = "the optimizer was replaced, see optim; the weights' movement is measured" if not place.has_cuda else None
        found.append(Difference("tuning.master_weights", "stochastic", name, why))
    wanted = OPTIMIZER_WORDS.get(
        trainer.args.optim if isinstance(trainer.args.optim, str) else trainer.args.optim.value
    )
    if wanted and wanted not in name.lower():
        found.append(Difference("grpo.optim", recipe.grpo.optim, name, None))
    return values, found


def optimizer_state(trainer: Any) -> dict[str, Any]:
    """Bytes of optimizer state by device and dtype, after a step."""
    inner = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    held: Counter[str] = Counter()
    for state in inner.state.values():
        for value in state.values():
            if hasattr(value, "element_size"):
                dtype = str(value.dtype).removeprefix("torch.")
                pinned = " pinned" if value.device.type == "cpu" and value.is_pinned() else ""
                held[f"{value.device.type}{pinned} {dtype}"] += value.numel() * value.element_size()
    return {"optimizer_state_bytes": dict(held)}


def state_differences(held: Mapping[str, int], recipe: Recipe, place: Place) -> list[Difference]:
    """After the first step: is the optimizer's state where the recipe wants it?"""
    asked = recipe.memory.offload_optimizer_state and place.has_cuda and place.engine == "unsloth"
    on_device = {where: size for where, size in held.items() if where.startswith("cuda")}
    # Step counters and small statistics stay where they are.
    if not asked or sum(on_device.values()) <= 0.05 * sum(held.values()):
        return []
    why = "Unsloth leaves paged optimizers alone" if recipe.grpo.optim.startswith("paged") else None
    return [Difference("memory.offload_optimizer_state", True, on_device, why)]


def parking(trainer: Any, recipe: Recipe, place: Place) -> tuple[dict[str, Any], list[Difference]]:
    """After the second rollout, the first one that finds optimizer state: did Unsloth put it aside?"""
    count = int(getattr(trainer, "_unsloth_park_count", 0))
    asked = recipe.memory.park_optimizer_during_rollout and place.has_cuda and place.engine == "unsloth"
    if not asked or count:
        return {"num_rollouts_with_parked_optimizer": count}, []
    why = None
    if recipe.grpo.optim.startswith("paged"):
        why = "Unsloth leaves paged optimizers alone"
    elif recipe.memory.offload_optimizer_state:
        why = "the state is offloaded between steps already"
    return {"num_rollouts_with_parked_optimizer": count}, [
        Difference("memory.park_optimizer_during_rollout", True, "nothing was parked", why)
    ]


def _engine(trainer: Any, model: Any, recipe: Recipe, plan: Plan, place: Place) -> Answer:
    route = plan.route.name
    generation = getattr(trainer, "vllm_generation", None)
    llm = getattr(generation, "llm", None)
    values: dict[str, Any] = {"route": route, "vllm_engine": None if llm is None else type(llm).__name__}
    if route in ("native", "scripted"):
        return values, []
    if route == "server":
        mode = getattr(generation, "mode", None)
        return values, [] if mode == "server" else [Difference("rollout.kind", "vllm_server", mode, None)]
    if llm is None:
        return values, [Difference("rollout.kind", recipe.rollout.kind, "no vLLM engine", None)]
    if route == "shared" and not hasattr(model, "vllm_engine"):
        return values, [Difference("rollout.kind", recipe.rollout.kind, "a model without vllm_engine", None)]
    return _engine_settings(values, llm, generation, recipe, plan, place)


def _engine_settings(
    values: dict[str, Any], llm: Any, generation: Any, recipe: Recipe, plan: Plan, place: Place
) -> Answer:
    config = llm.llm_engine.vllm_config
    effective: Mapping[str, Any] = {
        "sleep": bool(config.model_config.enable_sleep_mode) and bool(generation.enable_sleep_mode),
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "enforce_eager": config.model_config.enforce_eager,
        "enable_prefix_caching": config.cache_config.enable_prefix_caching,
        "kv_cache_dtype": config.cache_config.cache_dtype,
        "gpu_memory_utilization": config.cache_config.gpu_memory_utilization,
        "kv_cache_memory_bytes": getattr(config.cache_config, "kv_cache_memory_bytes", None),
        "max_model_len": config.model_config.max_model_len,
        "shares_weights": bool(getattr(llm, "shared_weights", False)),
    }
    values = {**values, "vllm": dict(effective)}
    found = []
    sleeps = recipe.vllm.standby if plan.route.name == "shared" else recipe.vllm.sleep
    if effective["sleep"] != sleeps:
        why = None if place.has_cuda else "vLLM cannot sleep on a CPU"
        found.append(Difference("vllm.sleep", sleeps, effective["sleep"], why))
    for key, asked in plan.llm_arguments.items():
        if effective[key] == asked or (key == "kv_cache_dtype" and asked == "auto"):
            continue
        on_cpu = not place.has_cuda and key in ("enforce_eager", "enable_prefix_caching", "dtype")
        why = "vLLM's CPU platform decides this itself" if on_cpu else None
        found.append(
            Difference(f"vllm.{key}" if key != "dtype" else "model.dtype (engine)", asked, effective[key], why)
        )
    asked_share = recipe.vllm.gpu_memory_utilization
    if place.has_cuda and abs(effective["gpu_memory_utilization"] - asked_share) > 0.005:
        noted = any(note.key == "vllm.gpu_memory_utilization" for note in plan.notes)
        shared = plan.route.name == "shared"
        why = "Unsloth counts it from free memory, and standby takes its own tier" if noted or shared else None
        found.append(Difference("vllm.gpu_memory_utilization", asked_share, effective["gpu_memory_utilization"], why))
    return values, found


def _stop_tokens(trainer: Any, model: Any, recipe: Recipe, plan: Plan, place: Place) -> Answer:
    """The sampler must stop where the trainer takes a completion to be finished, or every answer looks cut off."""
    tokenizer = trainer.processing_class
    values: dict[str, Any] = {
        "eos_token_id": tokenizer.eos_token_id,
        "has_chat_template": bool(tokenizer.chat_template),
    }
    llm = getattr(getattr(trainer, "vllm_generation", None), "llm", None)
    if llm is None:
        ends = _ids(getattr(model.generation_config, "eos_token_id", None))
    else:
        ends = _ids(getattr(llm.llm_engine.vllm_config.model_config.hf_config, "eos_token_id", None))
        ends |= _ids(llm.llm_engine.vllm_config.model_config.try_get_generation_config().get("eos_token_id"))
        ends |= _ids(llm.get_tokenizer().eos_token_id)
    values["sampler_stop_tokens"] = sorted(ends)
    if tokenizer.eos_token_id in ends or not ends:
        return values, []
    return values, [Difference("stop tokens", tokenizer.eos_token_id, sorted(ends), None)]


def _ids(value: Any) -> set[int]:
    if value is None:
        return set()
    return {int(one) for one in value} if isinstance(value, list | tuple) else {int(value)}
