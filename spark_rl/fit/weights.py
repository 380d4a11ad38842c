"""Bytes of weights, adapters, gradients and optimizer state.

In: a `Workload`. Out: bytes, and the words of the formula. The byte rules of each format and optimizer were read in the
packages' code (bitsandbytes 0.50, transformers 5.17, torchao 0.18, peft 0.21) and tried on a CPU where that is possible.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_rl.errors import ConfigError, did_you_mean
from spark_rl.fit.workload import Workload
from spark_rl.modelcard import ModelCard

# NF4: half a byte a weight, one fp32 scale per 64; double quantisation holds the scales in 8 bit, in groups of 256.
NF4_BYTES = 0.5 + 4 / 64
NF4_DOUBLE_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
# GPTQ, group 128: packed weight, a 16-bit scale and a packed zero point per group; plus an int32 index an input row.
GPTQ4_BYTES = 0.5 + 2 / 128 + 0.5 / 128
GPTQ8_BYTES = 1.0 + 2 / 128 + 1 / 128
# MXFP4: half a byte and one shared 8-bit exponent per 32.
MXFP4_BYTES = 0.5 + 1 / 32
# int8 and fp8: one byte, scales a row or a 128 x 128 block: nothing beside it.
EIGHT_BIT_BYTES = 1.0


def quantised_weight_bytes(quant: str, double_quant: bool) -> float:
    """Bytes of one weight of a quantised linear module."""
    name = quant.lower()
    if name in ("bnb-4bit", "nf4", "4bit"):
        return NF4_DOUBLE_BYTES if double_quant else NF4_BYTES
    if name in ("gptq-4bit", "awq-4bit", "w4a16") or name.startswith("4-bit"):
        return GPTQ4_BYTES
    if name == "gptq-8bit":
        return GPTQ8_BYTES
    if name in ("mxfp4", "nvfp4"):
        return MXFP4_BYTES
    if name in ("fp8", "bnb-8bit", "int8-w8a8", "int8", "8bit"):
        return EIGHT_BIT_BYTES
    known = ("bnb-4bit", "bnb-8bit", "fp8", "gptq-4bit", "gptq-8bit", "int8-w8a8", "mxfp4", "nf4")
    raise ConfigError(
        f"unknown weight format {quant!r}", hint=did_you_mean(quant, known) or f"known: {', '.join(known)}"
    )


def model_bytes(
    card: ModelCard,
    *,
    plain_bytes: float,
    quant: str | None = None,
    double_quant: bool = False,
    experts_quantised: bool = False,
    head_quantised: bool = False,
    untied_head: bool = False,
    fp32_plain: bool = False,
) -> float:
    """Bytes of one copy of the weights. `fp32_plain`: unquantised parts were cast up (k-bit preparation)."""
    extra_head = card.vocab * card.hidden if untied_head and card.tied else 0
    if quant is None:
        return (card.parameter_count + extra_head) * plain_bytes
    each = quantised_weight_bytes(quant, double_quant)
    quantised = card.quantisable_count
    head = card.head_count + extra_head
    if head_quantised:
        quantised += head
    if experts_quantised:
        quantised += card.expert_count
    rest = card.parameter_count + extra_head - quantised
    tables = card.quantised_tensor_count * ((64 + 1024) if double_quant else 64)
    return quantised * each + rest * (4 if fp32_plain else plain_bytes) + tables


def base_model_bytes(work: Workload) -> float:
    """The policy's own weights on all GPUs together."""
    return model_bytes(
        work.card,
        plain_bytes=work.base_bytes,
        quant=work.quant if work.tuning in ("qlora", "none") else None,
        double_quant=work.double_quant,
        experts_quantised=work.experts_quantised,
        head_quantised=work.stack.head_quantised,
        untied_head=work.stack.untied_head,
        fp32_plain=work.kbit_upcast,
    )


def _whole_targets(work: Workload) -> int:
    """Embedding and output layer among the targets, where the stack trains them whole."""
    if not work.stack.trains_whole_embeddings or isinstance(work.lora_targets, str):
        return 0
    return len({name.rsplit(".", 1)[-1] for name in work.lora_targets} & {"embed_tokens", "lm_head"})


def adapter_parameters(work: Workload) -> int:
    """Trained parameters beside a frozen base: LoRA pairs, and whole embeddings where they are trained so."""
    if work.tuning not in ("lora", "qlora"):
        return 0
    whole = _whole_targets(work)
    targets = work.lora_targets
    if whole and not isinstance(targets, str):
        targets = tuple(name for name in targets if name.rsplit(".", 1)[-1] not in ("embed_tokens", "lm_head"))
    lora = work.card.lora_parameter_count(work.lora_rank, targets)
    return lora + whole * work.card.vocab * work.card.hidden


def trained_parameters(work: Workload) -> int:
    if work.tuning == "full":
        extra = work.card.vocab * work.card.hidden if work.stack.untied_head and work.card.tied else 0
        return work.card.parameter_count + extra
    return adapter_parameters(work)


def trained_bytes(work: Workload) -> int:
    """Bytes of one trained weight."""
    return work.base_bytes if work.tuning == "full" else work.adapter_bytes


@dataclass(frozen=True)
class OptimizerRule:
    """State bytes per trained parameter, for fp32 and for 16-bit parameters, and the temporary of the step."""

    fp32: float
    sixteen: float
    step_temporary_states: float = 0.0
    """Out-of-place tensors of the step, as a multiple of one moment."""
    moments: int = 2
    block_quantised: bool = False
    """bitsandbytes 8 bit: embeddings keep 32-bit state, tensors under 4096 elements too."""
    paged: bool = False
    note: str = ""


_ADAM8 = 2 + 8 / 256
_ONE8 = 1 + 4 / 256

OPTIMIZERS: dict[str, OptimizerRule] = {
    "adamw_torch": OptimizerRule(8, 4, 1.0, note="foreach: the step builds one more moment"),
    "adamw_torch_fused": OptimizerRule(8, 4, note="fused: no temporary"),
    "adamw_8bit": OptimizerRule(_ADAM8, _ADAM8, block_quantised=True),
    "paged_adamw_8bit": OptimizerRule(_ADAM8, _ADAM8, block_quantised=True, paged=True),
    "adamw_32bit": OptimizerRule(8, 8),
    "paged_adamw_32bit": OptimizerRule(8, 8, paged=True),
    "adamw_torch_8bit": OptimizerRule(_ADAM8, _ADAM8),
    "adamw_torch_4bit": OptimizerRule(1 + 8 / 256, 1 + 8 / 256),
    "lion_32bit": OptimizerRule(4, 4, moments=1),
    "lion_8bit": OptimizerRule(_ONE8, _ONE8, moments=1, block_quantised=True),
    "paged_lion_32bit": OptimizerRule(4, 4, moments=1, paged=True),
    "paged_lion_8bit": OptimizerRule(_ONE8, _ONE8, moments=1, block_quantised=True, paged=True),
    "ademamix": OptimizerRule(12, 12, moments=3),
    "ademamix_8bit": OptimizerRule(3 + 12 / 256, 3 + 12 / 256, moments=3, block_quantised=True),
    "paged_ademamix_32bit": OptimizerRule(12, 12, moments=3, paged=True),
    "paged_ademamix_8bit": OptimizerRule(3 + 12 / 256, 3 + 12 / 256, moments=3, block_quantised=True, paged=True),
    "rmsprop_bnb": OptimizerRule(4, 4, moments=1),
    "rmsprop_bnb_32bit": OptimizerRule(4, 4, moments=1),
    "rmsprop_bnb_8bit": OptimizerRule(_ONE8, _ONE8, moments=1, block_quantised=True),
    "sgd": OptimizerRule(0, 0, moments=0),
    "rmsprop": OptimizerRule(4, 2, moments=1),
    "adagrad": OptimizerRule(4, 2, moments=1),
    "adafactor": OptimizerRule(0.01, 0.01, moments=0, note="row and column factors only"),
    "galore_adamw": OptimizerRule(8, 4, 1.0, note="moments of the projected gradient for targeted matrices"),
    "adamw_flash": OptimizerRule(4, 4, note="about 12 bytes a parameter all in, with weight and gradient"),
    "muon": OptimizerRule(4, 2, moments=1),
}  # fmt: skip

_OPTIMIZER_ALIASES = {
    "adamw_bnb_8bit": "adamw_8bit", "adamw": "adamw_torch", "adamw_hf": "adamw_torch", "adam": "adamw_torch",
    "adamw_ao_8bit": "adamw_torch_8bit", "adamw_ao_4bit": "adamw_torch_4bit", "paged_adamw": "paged_adamw_32bit",
    "adamw_bnb_32bit": "adamw_32bit", "lion": "lion_32bit", "lion_bnb": "lion_32bit", "adamw_anyprecision": "adamw_torch",
}  # fmt: skip


def optimizer_rule(name: str) -> OptimizerRule:
    """The rule of an `optim` name. Raises ConfigError, naming the nearest, for one whose memory is not known."""
    key = _OPTIMIZER_ALIASES.get(name, name)
    if key in OPTIMIZERS:
        return OPTIMIZERS[key]
    for prefix in ("galore_adamw", "ademamix", "paged_ademamix"):
        if key.startswith(prefix):
            return OPTIMIZERS[prefix] if prefix in OPTIMIZERS else OPTIMIZERS["paged_ademamix_32bit"]
    raise ConfigError(
        f"the memory of optimizer {name!r} is not known",
        hint=did_you_mean(name, (*OPTIMIZERS, *_OPTIMIZER_ALIASES)) or "use adamw_8bit or adamw_torch_fused",
    )


def optimizer_state_bytes(work: Workload) -> float:
    """State of all GPUs together; zero when nothing is trained."""
    rule = optimizer_rule(work.optimizer)
    count = trained_parameters(work)
    each = rule.fp32 if trained_bytes(work) == 4 else rule.sixteen
    if work.optimizer.startswith("galore") and work.tuning == "full":
        return _galore_state(work)
    if work.sharding in ("zero1", "zero2", "zero3") and work.compute_bytes == 2:
        return count * 12.0  # DeepSpeed: fp32 master and both moments
    if not rule.block_quantised:
        return count * each
    if work.tuning != "full":
        exact = _whole_targets(work) * work.card.vocab * work.card.hidden
        return (count - exact) * each + exact * 4.0 * rule.moments
    # transformers registers every embedding for 32-bit state; a tied output layer is the same tensor.
    card = work.card
    exact = card.embedding_count + card.vector_count
    full = 4.0 * rule.moments
    return (count - exact) * each + exact * full


def _galore_state(work: Workload, rank: int = 128) -> float:
    width = trained_bytes(work)
    total = 0.0
    targeted = 0
    for run in work.card.runs:
        for linear in run.layer.linears:
            if linear.experts or linear.is_parameter:
                continue
            short, long = sorted((linear.inputs, linear.outputs))
            r = min(rank, short)
            total += run.count * width * (2 * r * long + r * short)
            targeted += run.count * linear.weight_count
    return total + (trained_parameters(work) - targeted) * 2 * width


def gradient_bytes(work: Workload) -> float:
    """All gradients at once, on all GPUs together."""
    return trained_parameters(work) * trained_bytes(work)


def largest_trained_tensor_bytes(work: Workload) -> float:
    """The largest single gradient, for optimizers that step inside the backward pass."""
    card = work.card
    if work.tuning != "full":
        return gradient_bytes(work) * 0.02
    return max(card.vocab * card.hidden, card.widest_linear_count) * trained_bytes(work)


def optimizer_temporary_bytes(work: Workload) -> float:
    """What the optimizer step allocates for itself."""
    rule = optimizer_rule(work.optimizer)
    each = 4.0 if trained_bytes(work) == 4 else 2.0
    return trained_parameters(work) * each * rule.step_temporary_states
