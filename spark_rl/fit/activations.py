"""What autograd keeps, and what is alive at the worst moment of a forward and backward pass.

In: a layer's shape and a `Workload`. Out: bytes per token. The counts follow the modelling code of transformers 5.17 and
were checked with saved-tensor hooks on small models; tests/fit repeats the check. What cannot be counted on a CPU (the
temporaries of one layer's backward, the loss of each stack) comes from `Stack`.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_rl.fit.calibration import (
    CHUNK_SHARE_OF_FREE,
    GRPO_CHUNK_LOGIT_BYTES,
    GRPO_LEAST_CHUNKS,
    GRPO_LEAST_ROWS,
    UNSLOTH_GRPO_CHUNK_GIB,
    UNSLOTH_SFT_CHUNK_GIB,
)
from spark_rl.fit.workload import Workload
from spark_rl.modelcard import Layer, Linear, is_lora_target
from spark_rl.units import GIB


@dataclass(frozen=True)
class Numbers:
    """Element sizes in this workload."""

    act: int
    """A matrix product's output."""
    residual: int
    """The residual stream."""
    casts: bool
    """Autocast turns a wide input into 16 bit anew for every linear."""


def numbers(work: Workload) -> Numbers:
    if work.stack.casts_parameters or work.shard > 1:
        return Numbers(work.compute_bytes, work.compute_bytes, False)
    wide_weights = work.base_bytes == 4 or work.kbit_upcast
    residual = 4 if wide_weights else work.compute_bytes
    act = work.compute_bytes if (work.autocast or not wide_weights or work.kbit_upcast) else 4
    return Numbers(act, residual, residual == 4 and act == 2)


def mlp_width(layer: Layer) -> float:
    """Elements of one MLP intermediate per token: routed experts count once for each expert a token visits."""
    return float(
        sum(item.inputs * (layer.experts_per_token if item.experts else 1) for item in layer.linears if _ends_mlp(item))
    )


def _ends_mlp(linear: Linear) -> bool:
    names = ("down", "w2", "fc2", "mlp_c_proj", "dense_4h", "output")
    return linear.role == "mlp" and linear.name.startswith(names)


def _trained_width(layer: Layer, work: Workload, linear: Linear) -> float:
    """Bytes per input element that this linear saves for its own weight gradient."""
    if work.tuning == "full":
        return float(numbers(work).act)
    if work.tuning == "none" or not is_lora_target(linear, work.lora_targets):
        return 0.0
    if work.kernels in ("unsloth", "foak") or work.autocast or work.stack.casts_parameters:
        return 2.0
    return float(max(work.adapter_bytes, 2) if numbers(work).act != 4 else 4)


def _norm_saved(work: Workload, elements: float, *, residual: int, fused: bool, gemma: bool) -> float:
    """One norm over `elements` values: its input in fp32, and the normalised values where the weight is trained."""
    if fused:
        return elements * residual
    trained = work.tuning == "full" or work.stack.norm_keeps_output
    normalised = (4 if gemma or residual == 4 else 2) if trained else 0
    return elements * (4 + normalised)


_AFTER_ATTENTION = ("o_proj", "out_proj", "dense", "attn_c_proj")


def saved_bytes_per_token(layer: Layer, work: Workload) -> float:
    """Bytes per token that one layer saves when nothing is recomputed."""
    card, size = work.card, numbers(work)
    hidden = card.hidden
    fused_norm = work.stack.fused_norm or work.kernels in ("unsloth", "liger")
    gemma = card.family.startswith(("gemma", "vaultgemma"))
    full = work.tuning == "full"
    if layer.native_norm:
        total = layer.norms * float(hidden * size.act)  # torch's layer norm saves its input and two statistics
    else:
        total = layer.norms * _norm_saved(work, hidden, residual=size.residual, fused=fused_norm, gemma=gemma)
    dropped: dict[tuple[str, int], float] = {}
    inputs_of_group: dict[tuple[str, int], float] = {}
    shares_input = work.kernels in ("unsloth", "foak") or not (size.casts or _casts_for_adapter(work))
    for linear in layer.linears:
        width = _trained_width(layer, work, linear)
        if not width:
            continue
        visits = layer.experts_per_token if linear.experts else 1
        if linear.role == "mlp" and linear.inputs != hidden:
            total += width * linear.inputs * visits
        elif linear.role == "attention" and linear.name in _AFTER_ATTENTION:
            # Its input is the attention's output, counted there; a wider or narrower copy is counted here.
            if size.casts or _casts_for_adapter(work):
                total += width * linear.inputs
        elif shares_input:
            key = (linear.role, linear.inputs)
            inputs_of_group[key] = max(inputs_of_group.get(key, 0.0), width * linear.inputs * visits)
        else:
            total += width * linear.inputs * visits
        if not full:
            total += min(work.adapter_bytes, 4) * work.lora_rank * visits
            if work.stack.saves_dropout:
                dropped[(linear.role, linear.inputs)] = linear.inputs * (1 + width)
    total += sum(inputs_of_group.values()) + sum(dropped.values())
    if work.tuning == "qlora" and work.stack.quantised_saves_input:
        groups = {(item.role, item.inputs): item.inputs for item in layer.linears if item.is_quantisable}
        total += 2 * sum(groups.values()) + work.stack.quantised_saves_more * hidden
    total += _mixer_saved(layer, work, size)
    total += _mlp_saved(layer, work, size)
    return total + work.stack.extra_saved_per_hidden * hidden


def _casts_for_adapter(work: Workload) -> bool:
    return (
        work.tuning in ("lora", "qlora")
        and work.adapter_bytes == 4
        and not work.autocast
        and not work.stack.casts_parameters
        and work.kernels not in ("unsloth", "foak")
        and numbers(work).act == 2
    )


def _mixer_saved(layer: Layer, work: Workload, size: Numbers) -> float:
    """Attention's queries, keys, values and output; for recurrent mixers their projections, convolved and gated."""
    attention = layer.attention
    act = size.act
    if attention is None:
        widths = sum(item.outputs for item in layer.linears if item.role == "attention" and item.name != "out_proj")
        return float(3 * act * widths)
    keys = attention.kv_heads
    total = act * (attention.query_width + attention.output_width)
    total += act * keys * (attention.head_dim + attention.value_dim) + 4 * attention.heads
    if layer.qk_norm and not (work.kernels == "unsloth" or work.stack.fused_norm):
        elements = attention.query_width + attention.kv_heads * attention.head_dim
        total += elements * (4 + (act if work.tuning == "full" else 0))
    if work.attention == "eager":
        # Softmax in fp32, its 16-bit copy, and K and V repeated for every query head.
        total += attention.heads * work.tokens_per_row * (4 + (2 if act == 2 else 0))
        total += act * (attention.heads - attention.kv_heads) * (attention.head_dim + attention.value_dim)
    return float(total)


def _mlp_saved(layer: Layer, work: Workload, size: Numbers) -> float:
    width = mlp_width(layer)
    if layer.gated:
        fused = work.stack.fused_mlp or work.kernels in ("unsloth", "liger")
        saved = (2 if fused else 3) * size.act * width
    else:
        saved = size.act * width
    if layer.experts_per_token:
        # Each visited expert's output is kept for the gradient of its routing weight.
        saved += (size.act + work.stack.moe_extra_bytes) * work.card.hidden * layer.experts_per_token
    return saved / tiled_shards(work)


def tiled_shards(work: Workload) -> float:
    """Pieces a tiled MLP is computed in: the sequence over the hidden width, at least one."""
    if not work.tiled_mlp:
        return 1.0
    return max(1.0, work.tokens / work.card.hidden)


def checkpoint_bytes_per_token(work: Workload) -> float:
    """Layer inputs kept on the device by gradient checkpointing."""
    if work.checkpointing == "off":
        return 0.0
    each = work.card.hidden * numbers(work).residual
    if work.checkpointing in ("unsloth", "offload"):
        return 2.0 * each  # one layer in use, one on its way
    return each * work.card.layers


def parked_bytes_per_token(work: Workload) -> float:
    """Layer inputs that "unsloth" and offloading checkpointing keep in host memory."""
    if work.checkpointing not in ("unsloth", "offload"):
        return 0.0
    return work.card.hidden * numbers(work).residual * float(work.card.layers)


def final_norm_bytes_per_token(work: Workload) -> float:
    """What the norm before the output layer saves."""
    gemma = work.card.family.startswith(("gemma", "vaultgemma"))
    residual = numbers(work).residual
    if work.card.runs[0].layer.native_norm:
        return float(work.card.hidden * residual)
    return _norm_saved(work, work.card.hidden, residual=residual, fused=work.stack.fused_norm, gemma=gemma)


def saved_without_checkpointing(work: Workload) -> float:
    """Bytes per token that all layers and the final norm save when nothing is recomputed."""
    return final_norm_bytes_per_token(work) + sum(
        run.count * saved_bytes_per_token(run.layer, work) for run in work.card.runs
    )


def layer_backward_bytes_per_token(work: Workload) -> float:
    """One layer recomputed and differentiated: its saved tensors and the temporaries of its MLP."""
    return max(saved_bytes_per_token(run.layer, work) + _transient(run.layer, work) for run in work.card.runs)


def layer_transient_bytes_per_token(work: Workload) -> float:
    """The temporaries alone, where the saved tensors of every layer are counted already."""
    return max(_transient(run.layer, work) for run in work.card.runs)


def _transient(layer: Layer, work: Workload) -> float:
    """MLP temporaries of one layer's backward. Experts run as separate modules go one after another, each with its
    share of the tokens."""
    width = 0.0
    for linear in layer.linears:
        if not _ends_mlp(linear):
            continue
        visits = layer.experts_per_token if linear.experts else 1
        if linear.experts and work.stack.experts_are_modules:
            width += linear.inputs * visits / linear.experts
        else:
            width += linear.inputs * visits
    moved = 0.0
    if layer.experts_per_token and not work.stack.experts_are_modules:
        moved = work.stack.moe_transient_bytes * work.card.hidden * layer.experts_per_token
    return (work.stack.mlp_transient * numbers(work).act * width + moved) / tiled_shards(work)


# Families whose forward hands out 16-bit logits; under autocast accelerate then makes an fp32 copy of them.
_NARROW_LOGITS = ("gpt_bigcode", "gpt_neox", "gpt2", "falcon", "opt", "bloom", "starcoder2")


def full_logit_bytes(work: Workload) -> float:
    """Bytes per logit at the peak of the loss where all logits exist."""
    stack = work.stack
    each = stack.fused_logit_bytes if work.kernels in ("unsloth", "foak") else stack.full_logit_bytes
    if work.method == "grpo" and stack.grpo_logit_bytes is not None:
        each = stack.grpo_logit_bytes
    if stack.fp16_logit_bytes is not None and work.fp16:
        each = stack.fp16_logit_bytes
    if work.autocast and work.stack.narrow_logits_copied and work.card.family in _NARROW_LOGITS:
        each += 4
    return each


def loss_bytes(work: Workload) -> float:
    """The logits' workspace at the peak of the loss, all tokens."""
    vocab, hidden = work.card.vocab, work.card.hidden
    size = numbers(work)
    tokens = work.logit_tokens
    rest = tokens * hidden * (4 + size.act)
    if work.loss == "full":
        return tokens * vocab * full_logit_bytes(work) + rest
    if work.shard > 1 and work.loss == "fused" and work.stack.sharded_fused_logit_bytes:
        return tokens * vocab * work.stack.sharded_fused_logit_bytes + rest
    budget = chunk_budget(work)
    if budget is not None:
        return chunk_rows(work) * vocab * _chunk_logit_bytes(work) + rest + tokens * hidden * 4
    chunk = work.logit_chunk_tokens or work.stack.chunk_tokens
    in_chunk = min(tokens, chunk)
    kept = work.stack.kept_logit_bytes_quantised if work.tuning == "qlora" else work.stack.kept_logit_bytes
    return in_chunk * vocab * 14.0 + tokens * vocab * kept + rest + tokens * hidden * 4


def _chunk_logit_bytes(work: Workload) -> float:
    return GRPO_CHUNK_LOGIT_BYTES if work.method == "grpo" else 14.0


def chunk_rows(work: Workload) -> float:
    """Positions whose logits exist at once in a loss that sizes its chunks by memory."""
    tokens = work.logit_tokens
    budget = chunk_budget(work)
    if budget is None:
        return float(min(tokens, work.logit_chunk_tokens or work.stack.chunk_tokens))
    rows = budget / (work.card.vocab * _chunk_logit_bytes(work))
    if work.method == "grpo":
        rows = min(rows, tokens / GRPO_LEAST_CHUNKS)
        rows = max(rows, GRPO_LEAST_ROWS)
    return min(float(tokens), rows)


def chunk_budget(work: Workload) -> float | None:
    """Bytes a loss allows itself that sizes its chunks by free memory; None for fixed chunks."""
    most = work.stack.chunk_budget_gib
    if most is None or work.logit_chunk_tokens is not None:
        return None
    limit = UNSLOTH_GRPO_CHUNK_GIB if work.method == "grpo" else most
    budget = limit * GIB
    if work.free_bytes is not None:
        budget = min(budget, max(0.25 * GIB, work.free_bytes * CHUNK_SHARE_OF_FREE))
    elif limit > UNSLOTH_SFT_CHUNK_GIB:
        budget = UNSLOTH_SFT_CHUNK_GIB * GIB
    return budget
