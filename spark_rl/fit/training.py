"""Memory of one training step: what stays, and the moments that can peak.

In: a `Workload`. Out: lines for the weights that stay, and the phases log-prob pass, forward+backward and optimizer
step. The peak of a step is a maximum over moments (loss, backward of the last layer, backward of the first layer,
optimizer), never their sum.
"""

from __future__ import annotations

from dataclasses import replace

from spark_rl.fit.activations import (
    checkpoint_bytes_per_token,
    chunk_rows,
    full_logit_bytes,
    layer_backward_bytes_per_token,
    layer_transient_bytes_per_token,
    loss_bytes,
    mlp_width,
    numbers,
    parked_bytes_per_token,
    saved_without_checkpointing,
)
from spark_rl.fit.lines import Line, Phase, giga
from spark_rl.fit.weights import (
    adapter_parameters,
    base_model_bytes,
    gradient_bytes,
    largest_trained_tensor_bytes,
    optimizer_rule,
    optimizer_state_bytes,
    optimizer_temporary_bytes,
    trained_bytes,
    trained_parameters,
)
from spark_rl.fit.workload import Workload


def weight_lines(work: Workload) -> list[Line]:
    """The policy, its adapter, and a separate reference model where there is one."""
    card = work.card
    base = base_model_bytes(work) / work.shard
    kind = f"{work.quant} " if work.quant and work.tuning in ("qlora", "none") else ""
    share = f" / {work.shard} GPUs" if work.shard > 1 else ""
    formula = f"{giga(card.parameter_count)} parameters, {kind}{work.base_bytes} B where not quantised{share}"
    note = f"{giga(card.quantisable_count)} of them in linear modules" if kind else ""
    lines = [Line("weights", base, formula, note)]
    if work.offload_embedding and not card.tied:
        # A tied embedding is the output layer too and stays.
        moved = float(card.embedding_count * work.base_bytes)
        host = Line(
            "embedding", moved, f"{giga(card.embedding_count)} x {work.base_bytes} B", "on the host", "host", "system"
        )
        lines = [Line("weights", base - moved, formula, "without the embedding"), host]
    adapter = adapter_parameters(work)
    if adapter:
        lines.append(
            Line(
                "adapter weights",
                adapter * work.adapter_bytes / work.shard,
                f"r {work.lora_rank}: {giga(adapter)} x {work.adapter_bytes} B{share}",
            )
        )
    if work.reference_copy_bytes:
        lines.append(
            Line(
                "reference model",
                card.parameter_count * work.reference_copy_bytes / work.shard,
                f"{giga(card.parameter_count)} x {work.reference_copy_bytes} B{share}",
                "a second, frozen copy",
            )
        )
    if work.shard > 1:
        lines.append(_gathered_line(work))
    return lines


def _gathered_line(work: Workload) -> Line:
    """Sharded weights are gathered layer by layer: the one in use and the next, beside the embedding."""
    card = work.card
    widest = max(run.layer.parameter_count for run in card.runs)
    width = work.compute_bytes
    base = base_model_bytes(work)
    if work.quant and work.tuning == "qlora":
        widest = int(widest * base / (card.parameter_count * work.compute_bytes))
    gathered = 2 * widest * width + card.vocab * card.hidden * width
    return Line("gathered weights", gathered, f"2 layers x {giga(widest)} x {width} B + embedding", "unsharded for use")


def state_line(work: Workload, *, in_step: bool = False) -> Line:
    """Optimizer state where it lives outside the step."""
    rule = optimizer_rule(work.optimizer)
    total = optimizer_state_bytes(work) / work.state_shard
    each = total * work.state_shard / max(1, trained_parameters(work))
    formula = f"{giga(trained_parameters(work))} x {each:.3g} B" + (
        f" / {work.state_shard} GPUs" if work.state_shard > 1 else ""
    )
    if work.offload_optimizer and not in_step:
        return Line("optimizer state", total, formula, f"{work.optimizer}, in pinned host memory", "host", "system")
    if rule.paged:
        return Line("optimizer state", total, formula, f"{work.optimizer}: managed memory", "device", "managed")
    return Line("optimizer state", total, formula, work.optimizer)


def gradient_line(work: Workload, share: float = 1.0, note: str = "") -> Line:
    total = gradient_bytes(work) / work.gradient_shard
    if work.optimizer_in_backward:
        total = largest_trained_tensor_bytes(work)
        note = "stepped inside the backward pass: one tensor at a time"
    formula = f"{giga(trained_parameters(work))} x {trained_bytes(work)} B" + (
        f" / {work.gradient_shard} GPUs" if work.gradient_shard > 1 else ""
    )
    if share < 1:
        formula += f" x {share:.2g}"
    return Line("gradients", total * share, formula, note)


def cast_line(work: Workload) -> Line | None:
    """Autocast keeps a 16-bit copy of every trained fp32 matrix until the forward ends (the frozen ones are recast)."""
    if not work.autocast or work.base_bytes != 4 or work.shard > 1:
        return None
    if work.tuning != "full" and work.checkpointing != "off":
        return None
    count = sum(run.count * run.layer.quantisable_count for run in work.card.runs) + work.card.head_count
    return Line("autocast copies", 2.0 * count, f"{giga(count)} x 2 B", "kept while the forward runs")


def head_cast_line(work: Workload) -> Line | None:
    """An fp32 output layer is cast to 16 bit for its product."""
    wide = work.base_bytes == 4 or work.kbit_upcast
    if not wide or work.compute_bytes == 4 or work.stack.casts_parameters or work.shard > 1:
        return None
    if work.autocast and work.tuning == "full":
        return None
    count = work.card.head_output_count
    return Line("head cast to 16 bit", 2.0 * count, f"{giga(count)} x 2 B", "while the logits are computed")


def dequantise_line(work: Workload) -> Line | None:
    """A quantised matrix is expanded for use, one at a time."""
    if work.tuning != "qlora" or not work.quant:
        return None
    count = work.card.widest_linear_count
    if work.stack.head_quantised:
        count = max(count, work.card.head_output_count)
    return Line("dequantised matrix", count * 2.0, f"largest linear {giga(count)} x 2 B", "one at a time")


def moments(work: Workload) -> dict[str, list[Line]]:
    """The activations of each moment that can be the peak of a forward and backward pass."""
    tokens = work.tokens
    size = numbers(work)
    per_token = checkpoint_bytes_per_token(work)
    sequence = f"{work.rows} x {work.tokens_per_row} tokens"
    if work.checkpointing == "off":
        kept_each = saved_without_checkpointing(work)
        kept = Line("saved activations", tokens * kept_each, f"{sequence} x {giga(kept_each)}B", "nothing recomputed")
        in_layer = layer_transient_bytes_per_token(work)
        share = f"{kept.formula} / {work.card.layers} layers"
        last_kept = replace(kept, num_bytes=kept.num_bytes / work.card.layers, formula=share, note="first layer only")
    else:
        layers = work.card.layers if work.checkpointing == "on" else 2
        formula = f"{sequence} x {layers} layers x {work.card.hidden} x {size.residual} B"
        note = "" if work.checkpointing == "on" else "the others are parked on the host"
        kept = Line("checkpointed activations", tokens * per_token, formula, note)
        in_layer = layer_backward_bytes_per_token(work)
        one = tokens * work.card.hidden * size.residual
        single = f"{sequence} x {work.card.hidden} x {size.residual} B"
        last_kept = replace(kept, num_bytes=one, formula=single, note="first layer only")
    layer = Line("one layer's backward", tokens * in_layer, f"{sequence} x {giga(in_layer)}B", "")
    loss = Line("logits and loss", loss_bytes(work), _loss_formula(work), f"{work.loss} logits")
    head_share = _head_share(work)
    full_gradients = gradient_line(work)
    early = gradient_line(work, 1.0 if work.accumulates else head_share)
    extra = [line for line in (cast_line(work), dequantise_line(work)) if line is not None]
    head = head_cast_line(work)
    at_loss = [*extra, *([head] if head else [])]
    found = {
        "loss": [kept, loss, *at_loss, *([full_gradients] if work.accumulates else [])],
        "last layer": [
            kept,
            layer,
            early,
            *[line for line in extra if work.checkpointing == "off" or line.name != "autocast copies"],
        ],
        "first layer": [
            last_kept,
            layer,
            full_gradients,
            *[line for line in extra if work.checkpointing == "off" or line.name != "autocast copies"],
        ],
    }
    parked = parked_bytes_per_token(work)
    if parked:
        host = Line(
            "parked activations",
            tokens * parked,
            f"{sequence} x {work.card.layers} layers x {work.card.hidden} x {size.residual} B",
            "layer inputs in pinned host memory",
            "host",
            "system",
        )
        found = {name: [*lines, host] for name, lines in found.items()}
    return found


def _head_share(work: Workload) -> float:
    """Share of the gradients there is when the last layer is differentiated: the output layer's and that layer's own."""
    if work.tuning != "full":
        return 1.0 / max(1, work.card.layers)
    head = work.card.vocab * work.card.hidden
    return min(1.0, (head + max(run.layer.parameter_count for run in work.card.runs)) / work.card.parameter_count)


def _loss_formula(work: Workload) -> str:
    if work.loss == "full":
        return f"{work.logit_tokens} positions x {work.card.vocab} x {full_logit_bytes(work):g} B + hidden states"
    each = loss_bytes(work) / max(1.0, chunk_rows(work) * work.card.vocab)
    return f"{chunk_rows(work):.0f} positions at a time x {work.card.vocab} x {each:.3g} B, hidden states included"


def forward_backward_phase(work: Workload, stays: list[Line]) -> Phase:
    """The worst moment of the pass, with the name of the moment in the note."""
    candidates = moments(work)
    worst = max(candidates, key=lambda name: sum(line.num_bytes for line in candidates[name] if line.pool == "device"))
    words = {
        "loss": "at the loss",
        "last layer": "at the last layer's backward",
        "first layer": "at the end of backward",
    }
    return Phase("forward+backward", (*stays, *candidates[worst]), words[worst])


def logprob_phase(work: Workload, stays: list[Line]) -> Phase:
    """A pass without gradients: one layer's working set and the logits of its rows."""
    rows = work.logprob_rows or work.rows
    inner = replace(work, rows=rows, tuning="none" if work.tuning == "full" else work.tuning, checkpointing="on")
    tokens = inner.tokens
    act = numbers(work).act
    width = max(
        (run.layer.attention.query_width if run.layer.attention else work.card.hidden) for run in work.card.runs
    )
    mlp = max(mlp_width(run.layer) for run in work.card.runs)
    each = act * (3 * work.card.hidden + 2 * width + 3 * mlp)
    layer = Line("one layer's forward", tokens * each, f"{rows} x {work.tokens_per_row} tokens x {giga(each)}B")
    share = 0.6 if work.loss == "full" else 1.0
    logits = Line(
        "logits",
        loss_bytes(inner) * share,
        _loss_formula(inner) + (f" x {share:g}" if share < 1 else ""),
        "old and reference log-probabilities, no gradients",
    )
    worst = max((layer, logits), key=lambda line: line.num_bytes)
    hidden = Line("hidden states", tokens * work.card.hidden * numbers(work).residual, f"{tokens} x {work.card.hidden}")
    extra = dequantise_line(work)
    return Phase("log-prob pass", (*stays, hidden, worst, *([extra] if extra else [])))


def optimizer_phase(work: Workload, weights: list[Line]) -> Phase:
    temporary = optimizer_temporary_bytes(work) / work.state_shard
    lines = [
        *[line for line in weights if line.name != "gathered weights"],
        gradient_line(work),
        state_line(work, in_step=True),
    ]
    if temporary:
        lines.append(Line("optimizer temporaries", temporary, "one more moment (foreach)", work.optimizer))
    return Phase("optimizer step", tuple(lines))
