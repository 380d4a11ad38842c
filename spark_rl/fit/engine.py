"""The rollout engine: what vLLM claims, what is left for its cache, how many requests that serves.

In: a model's shape, `EngineSettings`, the device's physical size. Out: the budget's terms, cache blocks, tokens and
concurrency as vLLM works them out; and the effective settings after Unsloth's rewriting. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from spark_rl.fit.calibration import (
    ADVICE_MARGIN_BYTES,
    EXPERT_WORKSPACE,
    GRAPHS_FULL_SEQUENCES,
    GRAPHS_GIB,
    GRAPHS_LEAST_GIB,
    NON_TORCH_GIB,
    NON_TORCH_PARALLEL_GIB,
    OLD_SAMPLER_BYTES_PER_LOGIT,
    SAMPLER_BYTES_PER_LOGIT,
)
from spark_rl.fit.weights import model_bytes
from spark_rl.fit.workload import EngineSettings
from spark_rl.modelcard import Attention, ModelCard
from spark_rl.rollout.levers import standby_utilization
from spark_rl.units import GIB

BLOCK_TOKENS = 16
STATE_ELEMENT_BYTES = 4
"""Recurrent states are kept in fp32."""


@dataclass(frozen=True)
class CacheLayout:
    """How the engine arranges the cache: groups of equally many layers that share one pool of equally large blocks."""

    layers_per_group: int
    full_groups: int
    sliding_groups: int
    page_bytes: float
    """Bytes of one block of one layer."""
    window: int | None
    chunked: bool = False
    """Local layers attend to fixed chunks (Llama-4) and not to a sliding window, which may straddle one more block."""
    state_groups: int = 0
    """Groups of recurrent layers, which hold one block a sequence whatever its length."""
    full_block_tokens: int = BLOCK_TOKENS
    sliding_block_tokens: int = BLOCK_TOKENS

    @property
    def block_bytes(self) -> float:
        """One block of one group."""
        return self.page_bytes * self.layers_per_group

    @property
    def groups(self) -> int:
        return self.full_groups + self.sliding_groups + self.state_groups

    def blocks_per_request(self, tokens: int, batched_tokens: int) -> int:
        blocks = self.full_groups * math.ceil(tokens / self.full_block_tokens) + self.state_groups
        if not self.sliding_groups:
            return blocks
        assert self.window is not None
        held = min(self.window, tokens) if self.chunked else min(self.window - 1 + batched_tokens, tokens)
        each = math.ceil(held / self.sliding_block_tokens) + (0 if self.chunked else 1)
        return blocks + self.sliding_groups * each


def cache_layout(card: ModelCard, element_bytes: float = 2, parallel: int = 1, old_engine: bool = False) -> CacheLayout:
    """The groups the engine makes. Layers of one kind fill groups as large as the rarest kind; the rest is padding:
    gemma-3-27b's 10 full and 52 sliding layers become 7 groups of 10. Kinds with smaller pages take longer blocks."""
    full, sliding, states = 0, 0, 0
    window: int | None = None
    full_page = sliding_page = state_page = 0.0
    for run in card.runs:
        attention = run.layer.attention
        if run.layer.state_count:
            states += run.count
            state_page = max(state_page, run.layer.state_count * STATE_ELEMENT_BYTES / parallel)
        if attention is None or not attention.keeps_cache:
            continue
        page = _page_bytes(attention, element_bytes, parallel)
        if attention.window and not old_engine:
            sliding, window, sliding_page = sliding + run.count, attention.window, max(sliding_page, page)
        else:
            full, full_page = full + run.count, max(full_page, page)
    counts = [count for count in (full, sliding, states) if count]
    size = min(counts, default=1)
    if len(counts) == 1 or max(counts, default=1) < 1.25 * size:
        size = max(counts, default=1)
    widest = max(full_page, sliding_page)
    if states and widest:
        # Attention blocks are lengthened until a state fits into one.
        widest *= math.ceil(state_page / widest)
    return CacheLayout(
        size,
        math.ceil(full / size),
        math.ceil(sliding / size),
        max(widest, 1.0),
        window,
        card.family == "llama4_text",
        math.ceil(states / size),
        BLOCK_TOKENS * max(1, int(widest // full_page)) if full_page else BLOCK_TOKENS,
        BLOCK_TOKENS * max(1, int(widest // sliding_page)) if sliding_page else BLOCK_TOKENS,
    )


def _page_bytes(attention: Attention, element_bytes: float, parallel: int) -> float:
    if attention.latent is not None:
        return BLOCK_TOKENS * attention.latent * element_bytes
    heads = max(1.0, attention.kv_heads / parallel)
    return BLOCK_TOKENS * heads * (attention.head_dim + attention.value_dim) * element_bytes


@dataclass(frozen=True)
class CacheCapacity:
    cache_bytes: float
    tokens: int
    concurrency: float
    """Requests of the full length that fit at once."""


def cache_capacity(
    card: ModelCard,
    cache_bytes: float,
    request_tokens: int,
    *,
    element_bytes: float = 2,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    batched_tokens: int = 8192,
    old_engine: bool = False,
) -> CacheCapacity:
    """Tokens and concurrency of a cache. Negative room means none; nothing is rounded up. `old_engine`: before 0.9 every
    layer was cached in full."""
    layout = cache_layout(card, element_bytes, tensor_parallel, old_engine)
    blocks = max(0, int(cache_bytes * pipeline_parallel // layout.block_bytes))
    tokens = blocks // max(1, layout.groups) * layout.full_block_tokens
    per_request = layout.blocks_per_request(max(1, request_tokens), batched_tokens)
    return CacheCapacity(cache_bytes, tokens, blocks / max(1, per_request))


@dataclass(frozen=True)
class EngineBudget:
    """The terms of `KV = utilisation x physical total - weights - non-torch - activation`, in bytes."""

    claim: float
    weights: float
    non_torch: float
    activation: float
    cache: float
    graphs: float
    shared_weights: bool

    @property
    def outside(self) -> float:
        """Everything on the device, graphs included."""
        return self.claim + self.graphs

    def sentence(self) -> str:
        g = GIB
        return (
            f"cache {self.cache / g:.2f} GiB = budget {self.claim / g:.2f} - weights {self.weights / g:.2f} - non-torch "
            f"{self.non_torch / g:.2f} - activation {self.activation / g:.2f}"
        )


def engine_weight_bytes(card: ModelCard, engine: EngineSettings, plain_bytes: float = 2) -> float:
    total = model_bytes(
        card,
        plain_bytes=plain_bytes,
        quant=engine.weight_quant,
        double_quant=engine.weight_quant in ("bnb-4bit",),
        experts_quantised=str(engine.weight_quant).startswith(("fp8", "int8", "mxfp4", "gptq", "awq")),
    )
    lora = card.lora_parameter_count(engine.lora_rank, "all-linear", experts=False) * 2 if engine.lora_rank else 0
    return (total + lora) / engine.tensor_parallel / engine.pipeline_parallel


SAMPLER_CHANGED_IN = (0, 17)


def activation_bytes(card: ModelCard, engine: EngineSettings, *, old_sampler: bool | None = None) -> float:
    """Peak of the engine's profiling run: the sampler over max_num_seqs rows, or one layer over the batched tokens.

    A layer holds gate, up, their product and four hidden widths in 16 bit: 78.6 kB a token on Qwen3-4B, as logged.
    """
    if old_sampler is None:
        old_sampler = engine.version is not None and older_than(engine.version, SAMPLER_CHANGED_IN)
    sequences = min(engine.max_num_seqs or 256, 1024)
    batched = engine.max_batched_tokens or 4096
    experts = widest = 0.0
    for run in card.runs:
        expert = max(
            (item.inputs for item in run.layer.linears if item.experts and item.name == "down_proj"), default=0
        )
        experts = max(experts, 4.0 * expert * run.layer.experts_per_token / engine.tensor_parallel)
        dense = max((item.outputs for item in run.layer.linears if item.role == "mlp" and not item.experts), default=0)
        fused = any(item.name in ("gate_up_proj", "dense_h_to_4h", "input_linear") for item in run.layer.linears)
        widest = max(widest, (1.5 if fused else 3.0) * dense / engine.tensor_parallel)
    rate = OLD_SAMPLER_BYTES_PER_LOGIT if old_sampler else SAMPLER_BYTES_PER_LOGIT
    layer = batched * 2.0 * (widest + 4 * card.hidden)
    return max(sequences * card.vocab * rate, layer) + EXPERT_WORKSPACE * batched * experts


def older_than(version: str, limit: tuple[int, int]) -> bool:
    parts = version.split(".")
    try:
        return (int(parts[0]), int(parts[1])) < limit
    except (ValueError, IndexError):
        return False


def engine_budget(
    card: ModelCard,
    engine: EngineSettings,
    device_total: float,
    *,
    plain_bytes: float = 2,
    shared_weights: float | None = None,
) -> EngineBudget:
    """The engine's terms on a device of this physical size."""
    weights = engine_weight_bytes(card, engine, plain_bytes) if shared_weights is None else shared_weights
    non_torch = (NON_TORCH_GIB if engine.tensor_parallel == 1 else NON_TORCH_PARALLEL_GIB) * GIB
    activation = activation_bytes(card, engine)
    share = min(1.0, (engine.max_num_seqs or GRAPHS_FULL_SEQUENCES) / GRAPHS_FULL_SEQUENCES)
    graphs = (GRAPHS_LEAST_GIB + (GRAPHS_GIB - GRAPHS_LEAST_GIB) * share) * GIB if engine.cuda_graphs else 0.0
    if engine.kv_cache_bytes is not None:
        cache = float(engine.kv_cache_bytes)
        claim = weights + non_torch + activation + cache
    else:
        claim = (engine.utilization if engine.utilization is not None else 0.9) * device_total
        cache = claim - weights - non_torch - activation
    return EngineBudget(claim, weights, non_torch, activation, cache, graphs, shared_weights is not None)


def effective_utilization(asked: float, device_total_gib: float, *, standby: bool, override: bool = False) -> float:
    """What the engine will really claim: standby chooses its share by the card's size."""
    if standby and not override:
        return standby_utilization(device_total_gib)
    return asked


UNSLOTH_SHAPES = (
    (2, 2048, 8), (4, 2048, 16), (8, 4096, 32), (12, 4096, 48), (16, 6144, 64), (24, 6144, 80), (40, 8192, 96),
    (48, 8192, 112), (80, 8192, 128),
)  # fmt: skip
"""Read: batched tokens and sequences that Unsloth chooses for its engine, by the GB left for the cache."""


def unsloth_shape(cache_gb: float) -> tuple[int, int]:
    """Batched tokens and sequences of Unsloth's own engine."""
    for limit, batched, sequences in UNSLOTH_SHAPES:
        if cache_gb <= limit:
            return batched, sequences
    return 8192, 256


@dataclass(frozen=True)
class StartUp:
    """The eight numbers of a logged start-up, in GiB."""

    total_gib: float
    free_gib: float
    utilization: float
    weights_gib: float
    activation_gib: float
    non_torch_gib: float
    graphs_gib: float


@dataclass(frozen=True)
class StartUpVerdict:
    fits: bool
    cache_gib: float
    short_gib: float
    """How much is missing; 0 when it fits."""
    cache_cap_bytes: int | None
    """The cache size that would fit, rounded down; None when it fits."""
    sentence: str


def judge_start_up(log: StartUp) -> StartUpVerdict:
    """Whether a start-up with these terms survives graph capture, which the engine's budget does not contain."""
    claim = log.utilization * log.total_gib
    used = log.weights_gib + log.non_torch_gib + log.activation_gib
    cache = claim - used
    four = (
        f"budget {claim:.2f}, weights {log.weights_gib:.2f}, activation {log.activation_gib:.2f}, "
        f"non-torch {log.non_torch_gib:.2f} GiB"
    )
    if cache <= 0:
        return StartUpVerdict(False, cache, -cache, None, f"no room for a KV cache ({cache:.2f} GiB): {four}")
    need = claim + log.graphs_gib
    if need <= log.free_gib:
        return StartUpVerdict(True, cache, 0.0, None, f"KV cache {cache:.2f} GiB: {four}")
    short = need - log.free_gib
    cap = claim - used - log.graphs_gib - ADVICE_MARGIN_BYTES / GIB
    return StartUpVerdict(
        False,
        cache,
        short,
        int(cap * GIB),
        f"does not fit by {short:.2f} GiB: {four}, CUDA graphs {log.graphs_gib:.2f} outside the budget, "
        f"{log.free_gib:.2f} free; cap the KV cache at {cap * GIB / 1e9:.2f} GB",
    )


def judge_cache(cache_bytes: float, concurrency: float, sentence: str) -> str | None:
    """Why an engine with this cache cannot serve, or None."""
    if cache_bytes <= 0:
        return f"no room for a KV cache: {sentence}"
    if concurrency < 1:
        return f"the cache holds {concurrency:.2f} of one request of the full length: {sentence}"
    return None
