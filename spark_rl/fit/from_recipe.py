"""From a recipe and a machine to a workload: the values the engine will really use, not the ones that were asked.

In: a resolved `Recipe`, a `Machine`, the model's card. Out: a `Workload`, and notes on every setting that is rewritten
or has no effect there. Combinations that are known not to work are refused. Pure.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

from spark_rl.errors import Refused
from spark_rl.fit.calibration import TRL, UNSLOTH, Stack
from spark_rl.fit.engine import effective_utilization, unsloth_shape
from spark_rl.fit.phases import with_free_memory
from spark_rl.fit.weights import model_bytes
from spark_rl.fit.workload import Checkpointing, EngineSettings, LossKind, Tuning, Workload
from spark_rl.host import Machine
from spark_rl.modelcard import ModelCard
from spark_rl.recipe import Recipe
from spark_rl.rollout.levers import lever_notes
from spark_rl.rollout.plan import refusals
from spark_rl.units import GIB

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
TRL_BATCHED_TOKENS = 4096
"""Read: TRL starts its colocated engine with this many."""


def workload_from_recipe(recipe: Recipe, machine: Machine, card: ModelCard) -> Workload:
    """The workload of one GRPO step at the longest prompt and a full completion. Raises Refused for known conflicts."""
    _refuse_conflicts(recipe, machine)
    notes: list[str] = []
    on_cpu = machine.kind == "cpu"
    unsloth = recipe.engine.name == "unsloth" and not on_cpu
    stack: Stack = UNSLOTH if unsloth else TRL
    grpo = recipe.grpo
    full = recipe.tuning.method == "full"
    base = _BYTES[recipe.model.dtype]
    autocast = False
    if full and recipe.tuning.master_weights == "fp32":
        base = 4
        autocast = grpo.bf16 and not on_cpu
    length = recipe.prompt.max_prompt_length + grpo.max_completion_length
    reference = 0
    if full and grpo.beta > 0:
        reference = base
        notes.append(f"beta {grpo.beta:g} in full fine-tuning keeps a second, frozen copy of the model")
    work = Workload(
        card=card,
        method="grpo",
        tuning=cast(Tuning, recipe.tuning.method),
        quant=None if recipe.model.quantization == "none" else recipe.model.quantization,
        double_quant=recipe.model.double_quant,
        base_bytes=base,
        compute_bytes=4 if on_cpu and recipe.model.dtype == "float32" else (2 if base == 2 or autocast else 4),
        fp16=recipe.model.dtype == "float16",
        autocast=autocast,
        adapter_bytes=2 if stack.narrow_adapters and recipe.tuning.method == "qlora" else 4,
        lora_rank=recipe.lora.r,
        lora_targets=recipe.lora.target_modules,
        optimizer=_optimizer(recipe, machine, notes),
        offload_optimizer=recipe.memory.offload_optimizer_state and unsloth,
        park_optimizer=recipe.memory.park_optimizer_during_rollout and unsloth,
        offload_embedding=recipe.memory.offload_embedding and unsloth and recipe.rollout.kind != "unsloth_vllm",
        rows=grpo.per_device_train_batch_size,
        tokens_per_row=length,
        completion_tokens_per_row=grpo.max_completion_length + 1,
        accumulates=grpo.gradient_accumulation_steps > 1,
        checkpointing=_checkpointing(recipe, machine),
        loss=_loss(recipe, unsloth),
        tiled_mlp=recipe.memory.unsloth_tiled_mlp and unsloth,
        kernels="unsloth" if unsloth else None,
        stack=stack,
        reference_copy_bytes=reference,
        rollout_sequences=recipe.generation_batch_size,
        prompt_tokens=recipe.prompt.max_prompt_length,
        completion_tokens=grpo.max_completion_length,
        logprob_rows=grpo.per_device_train_batch_size,
        engine=_engine(recipe, machine, card, notes),
    )
    work = _with_mini_batches(work, recipe, machine, unsloth, notes)
    return replace(work, notes=(*dict.fromkeys((*notes, *lever_words(recipe, machine))),))


def _refuse_conflicts(recipe: Recipe, machine: Machine) -> None:
    """Combinations only: a setting that is refused at the start of a run can still be computed. A machine without a GPU is
    planned as native generation."""
    if machine.kind == "cpu":
        return
    found = [refusal for refusal in refusals(recipe, machine) if refusal.key in CONFLICT_KEYS]
    if found:
        raise Refused(found[0].reason, hint="; or ".join(found[0].ways_out))


CONFLICT_KEYS = ("rollout.kind", "model.quantization", "tuning.method", "memory.alloc_conf")


def lever_words(recipe: Recipe, machine: Machine) -> list[str]:
    """What each lever does not do here: no effect, another effect, or refused when the run starts."""
    words = [note.text for note in lever_notes(recipe, machine) if note.key != "vllm.gpu_memory_utilization"]
    for refusal in refusals(recipe, machine):
        if refusal.key not in CONFLICT_KEYS:
            words.append(f"{refusal.key}: {refusal.reason} (a run would be refused; {refusal.ways_out[0]})")
    return words


def _optimizer(recipe: Recipe, machine: Machine, notes: list[str]) -> str:
    name = recipe.grpo.optim
    if machine.kind == "cpu" and ("8bit" in name or "paged" in name):
        notes.append(f"optim {name} becomes adamw_torch_fused on a machine without a GPU")
        return "adamw_torch_fused"
    if recipe.tuning.master_weights == "stochastic" and recipe.tuning.method == "full" and "8bit" in name:
        return "adamw_torch_8bit"
    return name


def _checkpointing(recipe: Recipe, machine: Machine) -> Checkpointing:
    mode = recipe.memory.gradient_checkpointing
    if mode == "unsloth" and (machine.kind == "cpu" or recipe.engine.name != "unsloth"):
        return "on"
    return mode


def _loss(recipe: Recipe, unsloth: bool) -> LossKind:
    return "chunked" if unsloth or recipe.memory.use_liger_kernel else "full"


def _weights(recipe: Recipe, card: ModelCard) -> float:
    quant = None if recipe.model.quantization == "none" else recipe.model.quantization
    return model_bytes(
        card, plain_bytes=_BYTES[recipe.model.dtype], quant=quant, double_quant=recipe.model.double_quant
    )


def _engine(recipe: Recipe, machine: Machine, card: ModelCard, notes: list[str]) -> EngineSettings:
    kind = recipe.rollout.kind
    vllm = recipe.vllm
    if machine.kind == "cpu" and kind in ("unsloth_vllm", "vllm_colocate"):
        notes.append(f"rollout.kind {kind} is planned as native generation on a machine without a GPU")
        kind = "native"
    if kind == "native":
        return EngineSettings(kind="native")
    if kind == "vllm_server":
        notes.append("the server's memory is on another GPU and is not counted here")
        return EngineSettings(kind="server")
    total_gib = (machine.device_total_bytes or 0) / GIB
    standby = kind == "unsloth_vllm" and vllm.standby
    share = effective_utilization(
        vllm.gpu_memory_utilization, total_gib, standby=standby, override=vllm.standby_util_override
    )
    if standby and abs(share - vllm.gpu_memory_utilization) > 0.005:
        notes.append(
            f"standby replaces gpu_memory_utilization {vllm.gpu_memory_utilization:g} by {share:.3f} on this card "
            "(UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE=1 keeps the asked one)"
        )
    sleeps = standby if kind == "unsloth_vllm" else vllm.sleep
    level = (2 if standby else vllm.sleep_level) if sleeps else 0
    batched, sequences = TRL_BATCHED_TOKENS, recipe.generation_batch_size
    if kind == "unsloth_vllm":
        left = share * (machine.device_total_bytes or 0) - _weights(recipe, card)
        batched, sequences = unsloth_shape(left / 1e9)
    return EngineSettings(
        kind="shared" if kind == "unsloth_vllm" else "colocate",
        utilization=share,
        kv_cache_bytes=vllm.kv_cache_memory_bytes,
        max_model_len=vllm.max_model_len or recipe.model.max_seq_length,
        max_num_seqs=sequences,
        max_batched_tokens=batched,
        kv_element_bytes=1 if vllm.kv_cache_dtype == "fp8" else 2,
        weight_quant=None if recipe.model.quantization == "none" else recipe.model.quantization,
        sleep_level=level,
        cuda_graphs=not vllm.enforce_eager,
        lora_rank=recipe.lora.r if kind == "unsloth_vllm" else None,
    )


def _with_mini_batches(work: Workload, recipe: Recipe, machine: Machine, unsloth: bool, notes: list[str]) -> Workload:
    """Unsloth splits the micro-batch: as asked (its key counts mini-batches), or by its own rule from free memory."""
    if not unsloth:
        return work
    rows = work.rows
    asked = recipe.memory.unsloth_grpo_mini_batch
    if asked:
        count = min(asked, rows)
        size = math.ceil(rows / count)
        if size != rows:
            notes.append(f"unsloth_grpo_mini_batch {asked} splits {rows} rows into forwards of {size}")
        return replace(work, rows=size, logprob_rows=size)
    free = with_free_memory(work, float(machine.device_total_bytes or 0)).free_bytes or 0.0
    multiplier = recipe.memory.unsloth_logit_chunk_multiplier or max(4, work.tokens_per_row // 4096)
    limit, chosen = 0.8 * free, min(4, rows)
    for size in range(rows, 0, -1):
        hidden = size * work.tokens_per_row * work.card.hidden * 16
        logits = (size / rows) * size * work.tokens_per_row * work.card.vocab * 16 / multiplier
        if hidden + logits <= limit:
            chosen = size
            break
    count = max(1, rows // chosen)
    size = math.ceil(rows / count)
    if size != rows:
        notes.append(
            f"Unsloth will split {rows} rows into forwards of {size} by its own rule (free memory at that moment)"
        )
    return replace(work, rows=size, logprob_rows=size)
