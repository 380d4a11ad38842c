"""Memory of a whole GRPO run, phase by phase (and of the plain steps that published measurements are about).

In: a `Workload` and the device's physical size. Out: phases, each the list of what is alive in it, on the device and on
the host. Whether host lines cost anything of their own is the budget's question, not this module's.
"""

from __future__ import annotations

from dataclasses import replace

from spark_rl.fit.activations import checkpoint_bytes_per_token
from spark_rl.fit.calibration import (
    CONTEXT_GIB,
    CPU_PROCESS_GIB,
    HOST_PROCESS_GIB,
    UNIFIED_CONTEXT_GIB,
    UNIFIED_HOST_OVERHEAD_GIB,
)
from spark_rl.fit.engine import EngineBudget, cache_capacity, engine_budget
from spark_rl.fit.lines import Line, Phase, giga
from spark_rl.fit.training import (
    forward_backward_phase,
    logprob_phase,
    optimizer_phase,
    state_line,
    weight_lines,
)
from spark_rl.fit.weights import adapter_parameters, base_model_bytes, optimizer_rule
from spark_rl.fit.workload import Workload
from spark_rl.host import MachineKind
from spark_rl.units import GIB

SAFETENSORS_SHARD_BYTES = 50e9
"""Read: save_pretrained copies one shard of this size to the host before writing."""


def surrounding_lines(kind: MachineKind) -> list[Line]:
    """What a training process takes before it holds a single weight."""
    if kind == "cpu":
        return [
            Line("host process", CPU_PROCESS_GIB * GIB, f"{CPU_PROCESS_GIB} GiB", "python, torch", "host", "system")
        ]
    context, host, words = CONTEXT_GIB, HOST_PROCESS_GIB, "python, libraries"
    if kind == "unified":
        context, host = UNIFIED_CONTEXT_GIB, UNIFIED_HOST_OVERHEAD_GIB
        words = "python, libraries, pinned buffers, kernel compilation with few jobs"
    name = "host-side overhead" if kind == "unified" else "host process"
    return [
        Line("CUDA context", context * GIB, f"{context} GiB", "driver, cuBLAS workspaces, kernels", "device", "driver"),
        Line(name, host * GIB, f"{host} GiB", words, "host", "system"),
    ]


def run_phases(work: Workload, device_total: float, kind: MachineKind = "discrete") -> list[Phase]:
    """All phases of the run in the order they happen."""
    work = with_free_memory(work, device_total)
    weights = weight_lines(work)
    always = surrounding_lines(kind)
    budget = engine_terms(work, device_total)
    awake = _engine_lines(work, budget, asleep=False)
    asleep = _engine_lines(work, budget, asleep=work.engine.sleep_level > 0)
    plain = [line for line in weights if line.name != "gathered weights"]
    state = state_line(work)
    stays = [*weights, state]

    phases = [_load_phase(work, plain, always)]
    if work.method in ("grpo", "generate", "vllm"):
        phases.append(_rollout_phase(work, plain, state, awake, always))
    if work.method == "grpo":
        if work.engine.kind in ("colocate", "server"):
            phases.append(_sync_phase(work, plain, state, awake, always))
        phases.append(_with(logprob_phase(work, stays), asleep, always))
    if work.tuning != "none":
        phases.append(_with(forward_backward_phase(work, stays), asleep, always))
        phases.append(_with(optimizer_phase(work, weights), asleep, always))
        phases.append(_save_phase(work, plain, state, asleep, always))
        phases.append(_resume_phase(work, plain, state, always))
    if kind == "cpu":
        return phases
    return [_with_slack(phase, work) for phase in phases]


_STATIC = ("weights", "adapter weights", "reference model", "optimizer state", "gradients")
"""Lines allocated once: they leave no holes in the allocator's blocks."""


def _with_slack(phase: Phase, work: Workload) -> Phase:
    """The phase with what the allocator holds beyond what is in use."""
    moving = sum(
        line.num_bytes
        for line in phase.lines
        if line.owner == "torch" and line.pool == "device" and line.name not in _STATIC
    )
    stack = work.stack
    slack = (stack.reserved_ratio - 1) * moving + stack.reserved_extra_gib * GIB
    formula = f"{stack.reserved_ratio - 1:.0%} of what comes and goes + {stack.reserved_extra_gib} GiB"
    line = Line("allocator slack", slack, formula, "reserved but not in use", "device", "slack")
    return Phase(phase.name, (*phase.lines, line), phase.note)


def with_free_memory(work: Workload, device_total: float) -> Workload:
    """The workload, told how much is free for losses that size their chunks by it."""
    if work.free_bytes is not None or not device_total:
        return work
    rule = optimizer_rule(work.optimizer)
    held = base_model_bytes(work) / work.shard + adapter_parameters(work) * work.adapter_bytes * (1 + rule.moments)
    held += work.tokens * checkpoint_bytes_per_token(work)
    if work.engine.kind in ("shared", "colocate") and work.engine.sleep_level == 0:
        held += (work.engine.utilization or 0.5) * device_total
    return replace(work, free_bytes=max(0.0, device_total - held - CONTEXT_GIB * GIB))


def _with(phase: Phase, engine: list[Line], always: list[Line]) -> Phase:
    return Phase(phase.name, (*phase.lines, *engine, *always), phase.note)


def engine_terms(work: Workload, device_total: float) -> EngineBudget | None:
    """The engine's budget on this device; None without an engine on it."""
    if work.engine.kind not in ("shared", "colocate"):
        return None
    shared = base_model_bytes(work) / work.shard if work.engine.kind == "shared" else None
    engine = work.engine
    if engine.utilization is None and engine.kv_cache_bytes is None:
        length = engine.max_model_len or (work.prompt_tokens + work.completion_tokens) or work.tokens_per_row
        need = (
            max(1, work.rollout_sequences or work.rows)
            * length
            * work.card.cache_bytes_per_token(engine.kv_element_bytes)
        )
        engine = replace(engine, kv_cache_bytes=int(need))
    return engine_budget(work.card, engine, device_total, plain_bytes=work.compute_bytes, shared_weights=shared)


def _engine_lines(work: Workload, budget: EngineBudget | None, *, asleep: bool) -> list[Line]:
    if budget is None:
        return []
    lines = [
        Line("engine non-torch", budget.non_torch, "start-up log median", "", "device", "engine"),
        Line("engine CUDA graphs", budget.graphs, "start-up log median", "outside the budget", "device", "engine"),
    ]
    if not budget.shared_weights:
        if not asleep:
            lines.insert(0, Line("engine weights", budget.weights, "a second copy", "", "device", "engine"))
        elif work.engine.sleep_level == 1:
            lines.insert(0, Line("engine weights", budget.weights, "sleep level 1", "on the host", "host", "system"))
    if asleep:
        return lines
    cache = max(0.0, budget.cache)
    formula = f"{budget.claim / GIB:.2f} GiB claim - weights - non-torch - activation"
    if work.engine.kv_cache_bytes is not None:
        formula = f"kv_cache_memory_bytes {work.engine.kv_cache_bytes}"
    lines.append(Line("engine activations", budget.activation, "profiling run", "", "device", "engine"))
    lines.append(Line("KV cache", cache, formula, "", "device", "engine"))
    return lines


def _load_phase(work: Workload, weights: list[Line], always: list[Line]) -> Phase:
    if work.shard > 1 and work.stack.loads_whole:
        whole = Line("whole model", base_model_bytes(work), "before it is sharded", "beside its shard")
        weights = [*weights, whole]
    host = sum(line.num_bytes for line in weights if line.name == "weights")
    cache = Line("page cache", host, "the checkpoint, read once", "the kernel gives it back", "host", "system")
    return Phase("load", (*weights, *always, cache))


def _rollout_phase(work: Workload, weights: list[Line], state: Line, engine: list[Line], always: list[Line]) -> Phase:
    """Sampling. The optimizer state is there from the second step on, so it is counted."""
    held = state
    if work.park_optimizer:
        held = replace(state, pool="host", owner="system", note=f"{state.note}, parked while sampling")
    lines = [*weights, held]
    if work.engine.kind in ("none", "native"):
        lines += _native_cache_lines(work)
    return Phase("rollout", (*lines, *engine, *always))


def _native_cache_lines(work: Workload) -> list[Line]:
    """generate() in one call: a cache for every sequence, and sampling in fp32 over the vocabulary."""
    sequences = work.rollout_sequences or work.rows
    length = (work.prompt_tokens + work.completion_tokens) or work.tokens_per_row
    width = 4 if work.base_bytes == 4 and work.autocast else work.compute_bytes
    each = work.card.cache_bytes_per_token(width)
    state = work.card.state_bytes_per_sequence() * sequences
    cache = sequences * length * each + state
    grown = cache / max(1, work.card.layers)
    return [
        Line("KV cache", cache, f"{sequences} x {length} tokens x {giga(each)}B", "all sequences in one generate call"),
        Line("cache growth", grown, "one layer's K or V twice", "the cache grows by copying"),
        Line("sampling", 10.0 * sequences * work.card.vocab, f"{sequences} x {work.card.vocab} x 10 B", "fp32 logits"),
    ]


def _sync_phase(work: Workload, weights: list[Line], state: Line, awake: list[Line], always: list[Line]) -> Phase:
    """New weights go to the engine one parameter at a time; the cache is not there yet."""
    engine = [line for line in awake if line.name not in ("KV cache", "engine activations")]
    card = work.card
    widest = max(card.widest_linear_count, card.head_output_count)
    lines = [*weights, state]
    if work.tuning in ("lora", "qlora"):
        note = "one merged delta at a time"
    else:
        note = "one parameter at a time"
    lines.append(Line("sync buffer", 2.0 * widest * 2, f"2 x {giga(widest)} x 2 B", note))
    if work.shard > 1 and not work.stack.layered_gather:
        lines.append(
            Line("gathered model", base_model_bytes(work), "all shards", "a full gather without layered summon")
        )
    return Phase("weight sync", (*lines, *engine, *always))


def _save_phase(work: Workload, weights: list[Line], state: Line, engine: list[Line], always: list[Line]) -> Phase:
    saved = sum(line.num_bytes for line in weights if line.name == "weights")
    if work.tuning in ("lora", "qlora"):
        saved = adapter_parameters(work) * work.adapter_bytes
    shard = min(saved, SAFETENSORS_SHARD_BYTES)
    copy = Line("checkpoint copy", shard, "min(model, one 50 GB shard)", "on its way to the file", "host", "system")
    return Phase("save", (*weights, state, *engine, *always, copy))


def _resume_phase(work: Workload, weights: list[Line], state: Line, always: list[Line]) -> Phase:
    """Optimizer state is there before the first forward; the files pass through the host."""
    loaded = sum(line.num_bytes for line in weights if line.name == "weights")
    if work.tuning in ("lora", "qlora"):
        loaded = adapter_parameters(work) * work.adapter_bytes
    copies = 2.0 if optimizer_rule(work.optimizer).block_quantised else 1.0
    state_bytes = state.num_bytes
    host = [
        Line("checkpoint weights", loaded, "read whole before they are copied", "", "host", "system"),
        Line(
            "checkpoint state", copies * state_bytes, f"{copies:g} x state", "deep copy while loading", "host", "system"
        ),
    ]
    return Phase("resume", (*weights, state, *host, *always))


def cache_needed(work: Workload) -> float:
    """Cache bytes with which every sequence of a generation batch runs at once."""
    length = work.prompt_tokens + work.completion_tokens
    return work.rollout_sequences * length * work.card.cache_bytes_per_token(work.engine.kv_element_bytes)


def rollout_concurrency(work: Workload, cache_bytes: float) -> float:
    """Full-length sequences the engine serves at once."""
    return cache_capacity(
        work.card,
        cache_bytes,
        work.engine.max_model_len or max(1, work.prompt_tokens + work.completion_tokens),
        element_bytes=work.engine.kv_element_bytes,
        batched_tokens=work.engine.max_batched_tokens or 4096,
    ).concurrency
