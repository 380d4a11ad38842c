"""Software stacks: how each one saves activations and computes its loss. The few calibrated constants of training.

In: nothing. Out: `Stack` values; `stack_for` chooses one by framework name. Every constant says where it comes from:
"counted" was read from saved-tensor hooks on a small model here (tests/fit repeats that), "read" from the package's
code, "fitted" from the named rows of the public measurements by the slope between two batch sizes of one model, which
removes everything that does not grow with tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Stack:
    """How one software stack spends memory beyond the shapes of the model."""

    name: str
    full_logit_bytes: float = 14.0
    """Bytes per logit at the peak of the loss, full logits. transformers before 5: logits fp32 4, contiguous shift 4,
    log-softmax 4, gradient 2; fitted 14.0 on fms Mistral, Mixtral, gptq (six pairs agree within 0.1)."""
    fused_logit_bytes: float = 8.0
    """Bytes per logit when a fused cross entropy works on materialised logits. Fitted 8.0 on fms Llama-3 pairs."""
    chunk_tokens: int = 256
    """Tokens per logit chunk where the loss is chunked or fused with the head."""
    base_follows_trained: bool = False
    """Frozen weights are held in the dtype asked for trained ones."""
    fused_norm: bool = False
    fused_mlp: bool = False
    saves_dropout: bool = False
    extra_saved_per_hidden: float = 0.0
    """Further bytes per token, layer and hidden unit that the stack saves without checkpointing."""
    mlp_transient: float = 4.5
    """Activation-sized MLP tensors alive while one layer is differentiated, beyond the saved ones. Fitted on fms
    Mistral and Llama-3 LoRA pairs: (279 kB and 336 kB a token less what is counted as saved) / (2 B x 14336) = 4.6, 4.2."""
    reserved_ratio: float = 1.06
    """Reserved over allocated."""
    reserved_extra_gib: float = 0.4
    untied_head: bool = False
    """Embedding and output layer are both resident even where the model ties them."""
    head_quantised: bool = False
    paged_states_seen: bool = True
    """Paged optimizer states show in the figure the stack reports."""
    fsdp_fp32_master: bool = False
    repeats_kv: bool = False
    full_default_fp32: bool = False
    adapter_default_bytes: int = 4
    adapter_bytes_quantised: int | None = None
    prompt_default: int = 256
    double_quant_default: bool = False
    kbit_default: bool = False
    autocast_default: bool = False
    casts_parameters: bool = False
    """Mixed precision by casting parameters (FSDP2): activations are 16 bit although weights are fp32."""
    narrow_logits_copied: bool = False
    grpo_logit_bytes: float | None = None
    paged_steps_in_backward: bool = False
    reported_as: str = "reserved"
    fp16_logit_bytes: float | None = None
    kept_logit_bytes: float = 0.0
    kept_logit_bytes_quantised: float = 0.0
    quantised_saves_more: float = 0.0
    norm_keeps_output: bool = False
    quantised_saves_input: bool = False
    moe_saved_bytes: float = 4.0
    moe_transient_bytes: float = 4.0
    experts_are_modules: bool = False
    """Experts are ordinary linear modules (transformers before 5), so 4-bit loading converts them."""


TRANSFORMERS = Stack("transformers")


def stack_for(framework: str, kernels: str | None = None) -> Stack:
    """The stack of a framework name as people write it; the plain one for names we do not know."""
    return STACKS.get(framework, TRANSFORMERS)


STACKS: dict[str, Stack] = {
    "fms": replace(TRANSFORMERS, name="fms", experts_are_modules=True, narrow_logits_copied=True),
    "litgpt": Stack("litgpt", base_follows_trained=True, untied_head=True, head_quantised=True, chunk_tokens=128, extra_saved_per_hidden=5.8, norm_keeps_output=True, quantised_saves_input=True, saves_dropout=True, autocast_default=True, kept_logit_bytes=2, kept_logit_bytes_quantised=8, quantised_saves_more=7),
    "ms-swift": Stack("ms-swift", full_logit_bytes=34),
    "other": Stack("other", fp16_logit_bytes=8),
    "torchtune": Stack("torchtune", base_follows_trained=True, fused_norm=True, fused_mlp=True, paged_states_seen=False, paged_steps_in_backward=True, reported_as="allocated"),
    "prime-rl": Stack("prime-rl", base_follows_trained=True, casts_parameters=True, full_logit_bytes=17.5, moe_saved_bytes=6, moe_transient_bytes=6),
    "unsloth": Stack("unsloth"),
    "trl": Stack("trl", base_follows_trained=True, full_logit_bytes=12, grpo_logit_bytes=10),
    "liger": Stack("liger", full_logit_bytes=12),
}
