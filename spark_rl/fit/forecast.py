"""How long a step takes: decoding, training, syncing, and which of them dominates.

In: a `Workload`, a `Machine`. Out: `Forecast`. Decoding is bound by memory bandwidth: every step reads the weights once
and each sequence's cache. Prefill and training are bound by arithmetic. All figures are for full-length completions, so
a run whose answers stop earlier is faster; the band says so. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from spark_rl.fit.engine import cache_capacity
from spark_rl.fit.phases import engine_terms
from spark_rl.fit.weights import base_model_bytes, optimizer_state_bytes, quantised_weight_bytes
from spark_rl.fit.workload import Workload
from spark_rl.host import Machine
from spark_rl.modelcard import ModelCard

# ------------------------------------------------------------------------------------------------ constants

UNIFIED_EFFICIENCY_AT = 8.4e9
UNIFIED_EFFICIENCY = 0.635
UNIFIED_EFFICIENCY_SLOPE = 0.1165
"""Share of 273 GB/s that batch-1 decoding sustains on a GB10, per natural log of bytes read. Fitted on two public
16-bit vLLM rows (4B: 173 GB/s, 27B: 231 GB/s); 8B, 9B, 31B and 32B rows then agree within 6 %."""
UNIFIED_EFFICIENCY_MOST = 0.88
FOUR_BIT_EFFICIENCY_MOST = 0.62
"""4-bit kernels on GB10 (Marlin fallback): 162 to 170 GB/s on a 70B."""
DISCRETE_EFFICIENCY = 0.80
DISCRETE_STEP_SECONDS = 0.0015
"""Launches, sampling and scheduling of one engine step with CUDA graphs; eager mode about doubles the step."""
EAGER_FACTOR = 2.0
NATIVE_LAYER_SECONDS = 0.0010
"""transformers' generate: launches of one layer, one token."""
UNSLOTH_LAYER_SECONDS = 0.0006
CPU_LAYER_SECONDS = 0.0004
CPU_LAYER_TRAIN_SECONDS = 0.002
UNIFIED_TRAINING_EFFICIENCY = 0.30
"""Of 92 TF: an 8B LoRA step at sequence 1024 ran at 500 tokens/s, 24 TF."""
SYNC_SHARE_OF_BANDWIDTH = 0.25
SLEEP_WAKE_SECONDS = 0.6
BAND_LOW, BAND_HIGH = 0.45, 1.5
"""Low: answers half as long as the cap. High: what the public step times of this kind scatter."""


@dataclass(frozen=True)
class Forecast:
    """Seconds of one optimizer step and its parts; None where the machine's speed is not known."""

    decode_seconds: float
    prefill_seconds: float
    logprob_seconds: float
    training_seconds: float
    sync_seconds: float
    offload_seconds: float
    decode_tokens_per_second: float
    max_steps: int
    source: str

    @property
    def parts(self) -> dict[str, float]:
        return {
            "decoding": self.decode_seconds,
            "prefill": self.prefill_seconds,
            "log-prob pass": self.logprob_seconds,
            "forward+backward": self.training_seconds,
            "weight sync": self.sync_seconds,
            "offload traffic": self.offload_seconds,
        }

    @property
    def step_seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def run_hours(self) -> float:
        return self.step_seconds * self.max_steps / 3600

    @property
    def dominates(self) -> str:
        parts = self.parts
        return max(parts, key=lambda name: parts[name])


# ------------------------------------------------------------------------------------------------ decoding


def decode_bytes_per_step(card: ModelCard, batch: int, *, plain_bytes: float, quant: str | None = None) -> float:
    """Weight bytes one decoding step reads: every dense matrix once, and the experts that the batch touches."""
    each = quantised_weight_bytes(quant, True) if quant else plain_bytes
    experts_each = each if quant and not quant.startswith("bnb") else plain_bytes
    total = card.head_output_count * plain_bytes
    for run in card.runs:
        for linear in run.layer.linears:
            if linear.experts:
                chosen = run.layer.experts_per_token / linear.experts
                touched = 1 - (1 - chosen) ** max(1, batch)
                total += run.count * linear.parameter_count * touched * experts_each
            else:
                total += run.count * linear.parameter_count * (each if linear.is_quantisable else plain_bytes)
    return total + sum(linear.parameter_count for linear in card.other_linears) * plain_bytes


def decode_step_seconds(
    card: ModelCard,
    machine: Machine,
    batch: int,
    context_tokens: float,
    *,
    plain_bytes: float = 2,
    quant: str | None = None,
    cache_element_bytes: float = 2,
    engine: str = "vllm",
    eager: bool = False,
) -> float:
    """One token for each of `batch` sequences whose caches hold `context_tokens` on average."""
    weights = decode_bytes_per_step(card, batch, plain_bytes=plain_bytes, quant=quant)
    cache = batch * context_tokens * card.cache_bytes_per_token(cache_element_bytes)
    bandwidth = machine.bandwidth_bytes_per_second or 100e9
    flops = machine.bf16_flops or 10e12
    compute = 2.0 * card.active_parameter_count * batch / (flops * 0.6)
    if machine.is_unified:
        efficiency = min(
            UNIFIED_EFFICIENCY_MOST,
            max(0.6, UNIFIED_EFFICIENCY + UNIFIED_EFFICIENCY_SLOPE * math.log(weights / UNIFIED_EFFICIENCY_AT)),
        )
        if quant and ("4bit" in quant or "fp4" in quant):
            efficiency = min(efficiency, FOUR_BIT_EFFICIENCY_MOST)
        fixed = 0.0
    elif machine.kind == "cpu":
        efficiency, fixed = 0.7, card.layers * CPU_LAYER_SECONDS
    else:
        efficiency, fixed = DISCRETE_EFFICIENCY, DISCRETE_STEP_SECONDS
    step = max((weights + cache) / (bandwidth * efficiency), compute) + fixed
    if engine == "native" and machine.kind != "cpu":
        step = max(step, card.layers * NATIVE_LAYER_SECONDS)
    elif engine == "unsloth-native" and machine.kind != "cpu":
        step = max(step, card.layers * UNSLOTH_LAYER_SECONDS)
    elif eager:
        step *= EAGER_FACTOR
    return step


# ------------------------------------------------------------------------------------------------ a whole step


def forecast(work: Workload, machine: Machine, *, generation_batch: int, max_steps: int) -> Forecast:
    """Seconds of one optimizer step at full-length completions."""
    card = work.card
    completion, prompt = work.completion_tokens, work.prompt_tokens
    sequences = max(1, generation_batch)
    at_once = sequences
    terms = engine_terms(work, float(machine.device_total_bytes or 0))
    if terms is not None:
        capacity = cache_capacity(
            card,
            max(0.0, terms.cache),
            max(1, prompt + completion),
            element_bytes=work.engine.kv_element_bytes,
            batched_tokens=work.engine.max_batched_tokens or 4096,
        )
        at_once = max(1, min(sequences, int(capacity.concurrency), work.engine.max_num_seqs or sequences))
    # Continuous batching refills the places of finished completions, so there are no whole waves.
    waves = sequences / at_once
    native = work.engine.kind in ("none", "native")
    engine = "vllm" if not native else ("unsloth-native" if work.kernels == "unsloth" else "native")
    each = decode_step_seconds(
        card,
        machine,
        at_once,
        prompt + completion / 2,
        plain_bytes=work.base_bytes if native else work.compute_bytes,
        quant=work.quant,
        cache_element_bytes=work.engine.kv_element_bytes,
        engine=engine,
        eager=not native and not work.engine.cuda_graphs,
    )
    decode = waves * completion * each

    flops = (machine.bf16_flops or 10e12) * (
        UNIFIED_TRAINING_EFFICIENCY if machine.is_unified else machine.training_efficiency
    )
    active = card.active_parameter_count
    tokens = sequences * (prompt + completion)
    prefill = 2.0 * active * sequences * prompt / flops
    # Forward 2, input gradients 2, weight gradients 2 where weights are trained, one more forward when recomputed.
    passes = 4.0 + (2.0 if work.tuning == "full" else 0.0) + (2.0 if work.checkpointing != "off" else 0.0)
    training = passes * active * tokens / flops
    if machine.kind == "cpu":
        training += card.layers * CPU_LAYER_TRAIN_SECONDS * max(1, sequences // max(1, work.rows))
    passes_without = 1 + (0 if native else 1)
    logprob = passes_without * 2.0 * active * tokens / flops

    bandwidth = machine.bandwidth_bytes_per_second or 100e9
    sync = 0.0
    if work.engine.kind == "colocate":
        sync = base_model_bytes(work) * 2 / (bandwidth * SYNC_SHARE_OF_BANDWIDTH)
    if work.engine.sleep_level:
        sync += SLEEP_WAKE_SECONDS
    offload = _offload_seconds(work, machine)
    return Forecast(
        decode_seconds=decode,
        prefill_seconds=prefill,
        logprob_seconds=logprob,
        training_seconds=training,
        sync_seconds=sync,
        offload_seconds=offload,
        decode_tokens_per_second=at_once / each,
        max_steps=max_steps,
        source=machine.source,
    )


def _offload_seconds(work: Workload, machine: Machine) -> float:
    """State that travels to the host and back, over the link of a discrete card."""
    link = machine.host_link_bytes_per_second
    if link is None:
        return 0.0
    moved = 0.0
    if work.offload_optimizer:
        moved += 2 * optimizer_state_bytes(work)
    if work.park_optimizer:
        moved += 2 * optimizer_state_bytes(work)
    if work.checkpointing in ("unsloth", "offload"):
        # Hidden behind the computation except for a rest.
        moved += 0.2 * 2 * work.tokens * work.card.hidden * work.card.layers * 2
    return moved / link
