"""Every constant of the memory forecast that was fitted to measurements, with where it comes from, and the error bands.

In: nothing. Out: `Stack` values (how one software stack spends memory beyond the shapes of a model), the engine's
constants, and the bands. Three kinds of origin: "counted" with saved-tensor hooks on small models (tests/fit repeats
it), "read" in a package's code, "fitted" on public measurements: by the slope between two batch sizes of one model where
possible, because that removes everything that does not grow with tokens. Model shapes never choose a constant, except
where a family's code differs (said there).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_rl.units import GIB

# ------------------------------------------------------------------------------------------------ training stacks


@dataclass(frozen=True)
class Stack:
    """How one software stack saves activations, computes its loss and reports its memory."""

    name: str
    full_logit_bytes: float = 14.0
    """Bytes per logit at the peak of the loss when all logits exist: fp32 logits 4, contiguous shift 4, log-softmax 4,
    gradient 2. Fitted: six fms pairs (Mistral, Mixtral, GPTQ) give 14.0 +- 0.1 after 6 B a hidden unit."""
    fused_logit_bytes: float = 8.0
    """The same with a fused cross entropy on materialised logits (fp32 logits and their gradient). Fitted: fms Llama-3
    and PowerLM pairs, 8.0 +- 0.1."""
    grpo_logit_bytes: float | None = None
    """The GRPO loss, where it differs from the SFT loss of the stack."""
    fp16_logit_bytes: float | None = None
    """Without autocast and in fp16 the loss stays 16 bit: logits, shift, softmax, gradient at 2 B."""
    kept_logit_bytes: float = 0.0
    """Per logit, where a chunked loss still keeps all chunks."""
    kept_logit_bytes_quantised: float = 0.0
    """The same over a 4-bit base."""
    chunk_tokens: int = 256
    """Tokens whose logits exist at once in a chunked or head-fused loss."""
    chunk_budget_gib: float | None = None
    """Most a chunked loss takes, where the stack sizes its chunks by memory; never more than half of what is free."""
    sharded_fused_logit_bytes: float = 0.0
    """Bytes per logit that appear in sharded runs although the loss is fused."""
    narrow_logits_copied: bool = False
    """Families that return 16-bit logits get one more fp32 copy under autocast (accelerate)."""
    base_follows_trained: bool = False
    """Frozen weights are held in the dtype asked for trained ones (TRL loads strings in fp32; prime-rl, litgpt)."""
    full_default_fp32: bool = False
    """Full tuning holds fp32 weights under autocast where no dtype is asked for (TRL loads strings so)."""
    loads_whole: bool = False
    """Sharded runs hold the whole model beside its shard while they start (litgpt)."""
    base_limit_bytes: int = 4
    """Frozen weights are never held wider than this (Unsloth keeps 16 bit when it computes in fp32)."""
    fused_norm: bool = False
    """Norms save their input only."""
    fused_mlp: bool = False
    """The gated product recomputes the activation: two intermediates are saved instead of three."""
    norm_keeps_output: bool = False
    """The normalised values are saved although the norm's weight is frozen."""
    saves_dropout: bool = False
    """LoRA dropout is on: a one-byte mask and the dropped input of every targeted linear are saved."""
    quantised_saves_input: bool = False
    """4-bit products save their inputs (bitsandbytes before 0.45)."""
    quantised_saves_more: float = 0.0
    """Further bytes per token, layer and hidden unit of 4-bit layers."""
    extra_saved_per_hidden: float = 0.0
    """Further bytes per token, layer and hidden unit without checkpointing."""
    mlp_transient: float = 4.3
    """Activation-sized MLP tensors alive while one layer is differentiated, beyond the saved ones. Fitted: fms
    Mistral and Llama-3 LoRA pairs give 4.6 and 4.2."""
    experts_are_modules: bool = False
    """Experts are ordinary linear modules (transformers before 5): 4-bit loading converts them, and they run one after
    another, so that only one expert's temporaries exist."""
    moe_extra_bytes: float = 0.0
    """Per hidden unit and routed copy of a token, beyond the expert's output in the activation dtype."""
    moe_transient_bytes: float = 4.0
    """Per hidden unit and routed copy of a token while a layer is differentiated: both gradients in 16 bit."""
    casts_parameters: bool = False
    """Mixed precision casts parameters (FSDP2), so activations are 16 bit although weights are fp32."""
    narrow_adapters: bool = False
    """Adapters of a quantised base are 16 bit (read in TRL)."""
    layered_gather: bool = True
    """Sharded weights go to the engine layer by layer, never as a whole."""
    trains_whole_embeddings: bool = False
    """embed_tokens and lm_head as targets are trained whole, in fp32, beside their frozen originals (Unsloth)."""
    untied_head: bool = False
    """Embedding and output layer are both resident even where the model ties them (litgpt)."""
    head_quantised: bool = False
    paged_states_seen: bool = True
    """Paged optimizer states are in the figure the stack reports."""
    paged_steps_in_backward: bool = False
    """Full tuning with a paged optimizer steps inside the backward pass (torchtune's recipe)."""
    autocast_default: bool = False
    """Mixed precision is autocast where a row does not say."""
    attention_default: str = "sdpa"
    """Where a row does not name the attention."""
    prompt_tokens_default: int = 256
    """Prompt length where only the completion's is known."""
    unpadded_share: float = 1.0
    """Share of rows x longest length that a batch without padding really holds, where only the cap is published."""
    reported_as: str = "reserved"
    """What the stack's authors mean by a figure without an instrument."""
    reserved_ratio: float = 1.10
    """Reserved over allocated for what comes and goes; weights and states leave no holes. Fitted: prime-rl and ms-swift."""
    reserved_extra_gib: float = 0.5
    """Blocks the allocator holds in any case."""


TRANSFORMERS = Stack("transformers")
UNSLOTH = Stack(
    "unsloth",
    base_limit_bytes=2,
    trains_whole_embeddings=True,
    # Read: the fused loss sizes chunks by half of the free memory (the newest version stops at 4 GB), GRPO's at 2 GB.
    chunk_budget_gib=1e9,
    reserved_extra_gib=0.5,
)
CHUNK_SHARE_OF_FREE = 0.65
"""Of the free memory. Read: half; its versions before 2026 counted 4 B a logit where about 14 are used and so went over.
Fitted: the two fp32 270M rows at the cap."""
UNSLOTH_GRPO_CHUNK_GIB = 2.0
UNSLOTH_SFT_CHUNK_GIB = 4.0
GRPO_CHUNK_LOGIT_BYTES = 8.0
GRPO_LEAST_CHUNKS = 8
GRPO_LEAST_ROWS = 512
"""Read: Unsloth's GRPO scorer takes at most an eighth of the positions at once, but at least 512, and counts 8 B a logit."""
TRL = Stack(
    "trl",
    # Read: nll holds bf16 2 + fp32 4 + log-softmax 4 and, in backward, 2 to 4 more.
    full_logit_bytes=12.0,
    # Read: 8 B with the fused log-prob kernel, plus the slice's copy. Fitted: two Qwen3 QLoRA rows, 10.
    grpo_logit_bytes=10.0,
    base_follows_trained=True,
    full_default_fp32=True,
    narrow_adapters=True,
)

STACKS: dict[str, Stack] = {
    # Fitted: Llama-3 under FSDP with the fused loss grows by 774 kB a token, 262 of them checkpoints: 4.0 B a logit.
    "fms": replace(
        TRANSFORMERS, name="fms", experts_are_modules=True, narrow_logits_copied=True, sharded_fused_logit_bytes=4.0
    ),
    "liger": replace(TRANSFORMERS, name="liger", full_logit_bytes=12.0),
    "litgpt": Stack(
        "litgpt",
        base_follows_trained=True,
        loads_whole=True,
        untied_head=True,
        head_quantised=True,
        chunk_tokens=128,
        # Fitted: StableLM and Llama-2 LoRA slopes, 9.2 and 12.5 B a hidden unit, less 3 for dropout and 4 for norms.
        extra_saved_per_hidden=5.8,
        norm_keeps_output=True,
        saves_dropout=True,
        quantised_saves_input=True,
        quantised_saves_more=7.0,
        kept_logit_bytes=2.0,
        kept_logit_bytes_quantised=8.0,
        autocast_default=True,
    ),
    "torchtune": Stack(
        "torchtune",
        base_follows_trained=True,
        fused_norm=True,
        fused_mlp=True,
        paged_states_seen=False,
        paged_steps_in_backward=True,
        reported_as="allocated",
    ),
    "prime-rl": Stack(
        "prime-rl",
        # Fitted: Qwen3-0.6B 17.8 and Qwen3-4B 15.6 by slope.
        full_logit_bytes=17.5,
        base_follows_trained=True,
        casts_parameters=True,
        # Read in its grouped experts: weighting in fp32.
        moe_extra_bytes=4.0,
        moe_transient_bytes=6.0,
    ),
    # Fitted: Qwen-7B and 14B, 25 to 45, most 31 to 39 (reserved; its trainer also keeps logits for accuracy).
    # Its tables name flash attention or nothing; nothing means attention matrices, 5 B an element by the two rows without
    # checkpointing.
    "ms-swift": Stack("ms-swift", full_logit_bytes=34.0, attention_default="eager"),
    "other": Stack("other", fp16_logit_bytes=8.0),
    "verl": Stack("verl", full_logit_bytes=6.0, unpadded_share=0.3),
    "openrlhf": TRANSFORMERS,
    "unsloth": UNSLOTH,
    "llama-factory": replace(UNSLOTH, name="llama-factory", reserved_ratio=1.25),
    "trl": TRL,
}


def stack_for(framework: str) -> Stack:
    """The stack of a framework's name; plain transformers for names we do not know."""
    return STACKS.get(framework, TRANSFORMERS)


# ------------------------------------------------------------------------------------------------ outside torch

CONTEXT_GIB = 0.55
"""CUDA context, cuBLAS workspaces and loaded kernels on a discrete card: nvml less reserved where both are logged
without fragmentation (fms, 0.4 to 0.8)."""
UNIFIED_CONTEXT_GIB = 1.3
"""The same on GB10, as reported."""
UNIFIED_HOST_OVERHEAD_GIB = 5.6
"""Host side of a training process on GB10 (python, libraries, pinned buffers), as reported."""
COMPILE_TRANSIENT_GIB = 2.0
"""Extra host memory while kernels are compiled with few jobs; an unlimited build reached 30 GB in one report."""
CPU_PROCESS_GIB = 1.2
"""Python with torch and TRL loaded, without a GPU (measured here)."""
HOST_PROCESS_GIB = 4.0
"""Host side of a training process on a discrete machine."""

# ------------------------------------------------------------------------------------------------ engine (vLLM)

SAMPLER_BYTES_PER_LOGIT = 15.3
"""Per logit of max_num_seqs rows in the profiling run, vLLM 0.17 and later. Fitted: start-up logs of 0.19, 14.9 to 16 from
49k to 262k vocabulary."""
OLD_SAMPLER_BYTES_PER_LOGIT = 38.6
"""Before 0.17. Fitted: 38.5 to 39 on eleven logs of 128 to 1024 sequences and 100k to 201k vocabulary."""
EXPERT_WORKSPACE = 1.5
"""Times batched tokens x routed copies x expert width x 2 matrices x 2 B. Fitted: the three MoE logs."""
NON_TORCH_GIB = 0.25
NON_TORCH_PARALLEL_GIB = 2.1
"""NCCL's buffers with tensor parallelism."""
GRAPHS_GIB = 0.9
"""CUDA graphs lie outside the budget: median of the logs, 0.2 to 2.3."""
GRAPHS_LEAST_GIB = 0.35
GRAPHS_FULL_SEQUENCES = 256
"""Fewer sequences mean fewer sizes to capture: from the least share up to the median at this many (an assumption; the
logs of 128 to 320 sequences scatter from 0.2 to 1.1)."""
ADVICE_MARGIN_BYTES = 150 * 1024 * 1024
"""Read: what vLLM keeps aside when it advises a cache size."""

# ------------------------------------------------------------------------------------------------ bands


EXACT_LINES = frozenset(
    {
        "weights", "adapter weights", "reference model", "optimizer state", "gradients", "optimizer temporaries",
        "checkpointed activations", "gathered weights", "KV cache", "engine weights", "parked activations",
        "engine activations", "engine non-torch", "checkpoint weights", "checkpoint state", "checkpoint copy",
    }
)  # fmt: skip
"""Lines that follow from shapes and formats alone. The others (one layer's working set, the loss, slack, graphs, contexts)
depend on kernels and versions. The engine's own split is uncertain too, but its claim on the device is a given share."""


@dataclass(frozen=True)
class Band:
    """How far a measurement may lie from a prediction, nine times in ten: a share of the bytes that follow from shapes,
    a larger share of those that do not."""

    exact: float
    estimated: float
    note: str

    def around(self, exact_bytes: float, estimated_bytes: float) -> tuple[float, float]:
        spread = self.exact * exact_bytes + self.estimated * estimated_bytes + FIXED_UNCERTAINTY
        total = exact_bytes + estimated_bytes
        return max(0.0, total - spread), total + spread


# From the scored public rows of known length: these shares hold 93 to 97 % of each kind (3 % and 35 % already hold 92 %),
# rounded outwards because other models are harder than the ones the constants came from. scripts/score_fit prints it.
BAND_ALLOCATED = Band(0.04, 0.30, "allocated peak")
BAND_RESERVED = Band(0.05, 0.36, "reserved peak")
BAND_REPORTED = Band(0.18, 0.18, "instrument not stated: the whole figure is uncertain")
BAND_RECIPE = Band(0.03, 0.38, "a recipe on our own stack: shapes, lengths and settings are known")


def training_band(metric: str | None) -> Band:
    if metric == "allocated_peak":
        return BAND_ALLOCATED
    if metric == "reported":
        return BAND_REPORTED
    return BAND_RESERVED


FIXED_UNCERTAINTY = 0.3 * GIB
"""Bytes no band goes below: allocator blocks and libraries do not shrink with the model."""
