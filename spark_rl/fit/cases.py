"""Predicting published measurements: from a row of a case file to a workload, and back to the row's own metric.

In: rows in the format of the public memory cases and the model shapes they name. Out: `Prediction`. Nothing here looks
at a row's id, source, notes or measured value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from spark_rl.errors import SparkError
from spark_rl.fit.calibration import CONTEXT_GIB, EXACT_LINES, Band, Stack, stack_for, training_band
from spark_rl.fit.engine import CacheCapacity, activation_bytes, cache_capacity, engine_weight_bytes, older_than
from spark_rl.fit.lines import Phase
from spark_rl.fit.phases import run_phases
from spark_rl.fit.weights import optimizer_rule
from spark_rl.fit.workload import DTYPE_BYTES, Checkpointing, EngineSettings, LossKind, Tuning, Workload
from spark_rl.modelcard import ModelCard
from spark_rl.units import GIB

Verdict = Literal["fits", "tight", "does_not_fit"]


@dataclass(frozen=True)
class Prediction:
    """What a row's measurement should be, per GPU and in the row's metric, or why it cannot be said."""

    predicted_gib: float | None = None
    low_gib: float | None = None
    high_gib: float | None = None
    verdict: Verdict | None = None
    phase: str | None = None
    kv_concurrency: float | None = None
    kv_tokens: int | None = None
    reason: str | None = None
    """Why there is no prediction."""

    def to_json(self, case_id: Any) -> dict[str, Any]:
        def rounded(value: float | None) -> float | None:
            return None if value is None else round(value, 3)

        row: dict[str, Any] = {
            "id": case_id,
            "predicted_gib": rounded(self.predicted_gib),
            "low_gib": rounded(self.low_gib),
            "high_gib": rounded(self.high_gib),
            "verdict": self.verdict,
            "phase": self.phase,
            "kv_concurrency": self.kv_concurrency,
        }
        if self.reason:
            row["reason"] = self.reason
        return row


_LOSSES: dict[str, LossKind] = {"full-logits": "full", "chunked": "chunked", "fused-ce": "fused"}
UNKNOWN_LENGTH = 1024
"""Tokens a row where the source gives no length at all."""
SHORTEST_SHARE = 1 / 8
"""Of a cap, as the least a real batch may have held."""


def _quant(row: Mapping[str, Any]) -> str | None:
    found = row.get("quant")
    if not found:
        return None
    name = str(found).lower()
    if name in _KNOWN_FORMATS:
        return name
    # An unknown name of a known width.
    return "gptq-4bit" if "4" in name else "fp8" if "8" in name else None


_KNOWN_FORMATS = ("bnb-4bit", "nf4", "gptq-4bit", "gptq-8bit", "awq-4bit", "w4a16", "mxfp4", "nvfp4", "fp8", "bnb-8bit", "int8-w8a8", "int8")  # fmt: skip


def _optimizer(row: Mapping[str, Any], default: str) -> str:
    """The optimizer's name; for one we do not know, the nearest by its words."""
    name = str(row.get("optimizer") or default).split()[0].lower()
    try:
        optimizer_rule(name)
    except SparkError:
        words = (
            ("8bit", "adamw_8bit"),
            ("4bit", "adamw_torch_4bit"),
            ("lion", "lion_32bit"),
            ("sgd", "sgd"),
            ("fused", "adamw_torch_fused"),
        )
        return next((known for word, known in words if word in name), "adamw_torch")
    return name


def _tuning(row: Mapping[str, Any]) -> Tuning:
    """How it was tuned; where a training row does not say, adapters if it names a rank and all weights otherwise."""
    found = row.get("tuning")
    if found in ("full", "lora", "qlora"):
        return cast(Tuning, found)
    if row.get("method") == "generate":
        return "none"
    if row.get("lora_rank"):
        return "qlora" if row.get("quant") else "lora"
    return "full"


def _sharding(row: Mapping[str, Any]) -> str | None:
    """The sharding in our words; tensor parallel training splits weights like a full shard."""
    name = str(row.get("sharding") or "").lower()
    if name.startswith(("fsdp", "hsdp", "tp", "megatron")):
        return "fsdp"
    return next((known for known in ("zero3", "zero2", "zero1") if known in name), None)


def _targets(row: Mapping[str, Any]) -> tuple[str, ...] | str:
    found = row.get("lora_targets")
    if found is None:
        return "all-linear"
    return found if isinstance(found, str) else tuple(found)


def _base_bytes(row: Mapping[str, Any], stack: Stack, compute: int) -> int:
    asked = DTYPE_BYTES.get(row.get("param_dtype") or "", 0)
    if _tuning(row) == "full":
        return asked or (4 if stack.full_default_fp32 else 2)
    if stack.base_follows_trained and asked:
        return asked
    return min(compute, stack.base_limit_bytes)


def _autocast_default(row: Mapping[str, Any], stack: Stack) -> bool:
    return stack.autocast_default or (stack.full_default_fp32 and _tuning(row) == "full" and not row.get("param_dtype"))


def _length(row: Mapping[str, Any], stack: Stack) -> int:
    length = row.get("seq_len")
    if not length:
        completion = row.get("max_completion_length")
        length = completion + stack.prompt_tokens_default if completion else UNKNOWN_LENGTH
    if row.get("seq_len_kind") == "max" and row.get("method") == "grpo":
        length *= stack.unpadded_share
    return max(1, int(length))


def engine_from_case(row: Mapping[str, Any]) -> EngineSettings:
    found = row.get("vllm")
    if not isinstance(found, Mapping):
        return EngineSettings()
    kinds = {"shared": "shared", "colocate": "colocate", "server": "server"}
    return EngineSettings(
        kind=cast(Any, kinds.get(str(found.get("mode")), "none")),
        utilization=found.get("gpu_memory_utilization"),
        max_model_len=found.get("max_model_len"),
        max_num_seqs=256,
        weight_quant=_quant(row),
        sleep_level=2 if found.get("sleep") else 0,
        kv_element_bytes=1 if str(row.get("kv_dtype")).startswith(("fp8", "int8")) else 2,
        version=row.get("framework_version"),
        tensor_parallel=int(row.get("tensor_parallel") or 1),
        pipeline_parallel=int(row.get("pipeline_parallel") or 1),
    )


def workload_from_case(row: Mapping[str, Any], card: ModelCard) -> Workload:
    """The step a row describes. What the row leaves open takes the default of its stack."""
    framework = row.get("framework") or "other"
    stack = stack_for(framework)
    tuning = _tuning(row)
    compute = DTYPE_BYTES.get(row.get("compute_dtype") or "bf16", 2)
    quant = _quant(row)
    rows = int(row.get("micro_batch") or 1) * (2 if row.get("method") == "dpo" else 1)
    autocast = row.get("autocast")
    completion = row.get("max_completion_length") if row.get("method") == "grpo" else None
    asked = row.get("grad_checkpointing")
    checkpointing = cast(Checkpointing, asked if asked in ("unsloth", "offload") else "off" if asked is False else "on")
    optimizer = _optimizer(row, "adamw_8bit" if framework == "unsloth" else "adamw_torch")
    return Workload(
        card=card,
        method=row.get("method") or "sft",
        tuning=tuning,
        quant=quant,
        double_quant=bool(row.get("double_quant")),
        kbit_upcast=bool(row.get("kbit_upcast")),
        experts_quantised=stack.experts_are_modules
        or str(quant).startswith(("gptq", "fp8", "int8", "mxfp4"))
        or (framework == "unsloth" and card.family == "gpt_oss"),
        base_bytes=_base_bytes(row, stack, compute),
        compute_bytes=compute,
        fp16=row.get("compute_dtype") == "fp16",
        autocast=autocast not in (None, "none") or (autocast is None and _autocast_default(row, stack)),
        adapter_bytes=2
        if stack.narrow_adapters and tuning == "qlora"
        else DTYPE_BYTES.get(row.get("param_dtype") or "", 4),
        lora_rank=int(row.get("lora_rank") or 16),
        lora_targets=_targets(row),
        optimizer=optimizer,
        optimizer_in_backward=stack.paged_steps_in_backward and optimizer.startswith("paged") and tuning == "full",
        rows=rows,
        tokens_per_row=_length(row, stack),
        completion_tokens_per_row=int(completion) if completion else None,
        accumulates=(row.get("grad_accum") or 1) > 1,
        checkpointing=checkpointing,
        loss=_LOSSES.get(row.get("loss_impl") or "", "chunked" if framework == "unsloth" else "full"),
        attention=row.get("attention") or stack.attention_default,
        kernels=row.get("kernels"),
        stack=stack,
        gpus=int(row.get("n_gpus") or 1),
        sharding=_sharding(row),
        rollout_sequences=rows,
        engine=engine_from_case(row),
    )


# --------------------------------------------------------------------------------------------- training and GRPO


def _torch_bytes(phase: Phase, work: Workload) -> float:
    total = phase.of_owner("torch")
    return total + (phase.of_owner("managed") if work.stack.paged_states_seen else 0.0)


def reserved_bytes(phase: Phase, work: Workload) -> float:
    """What the allocator holds in this phase, slack included; the engine's own pool is counted as it is."""
    return _torch_bytes(phase, work) + phase.of_owner("slack") + phase.of_owner("engine")


def _in_metric(phase: Phase, work: Workload, metric: str | None) -> float:
    if metric == "allocated_peak" or (metric == "reported" and work.stack.reported_as == "allocated"):
        return _torch_bytes(phase, work) + phase.of_owner("engine")
    if metric == "nvml_used":
        return reserved_bytes(phase, work) + CONTEXT_GIB * GIB
    return reserved_bytes(phase, work)


_STEP_PHASES = ("load", "rollout", "weight sync", "log-prob pass", "forward+backward", "optimizer step")


def _step_phases(work: Workload, device_total: float) -> list[Phase]:
    found = [phase for phase in run_phases(work, device_total) if phase.name in _STEP_PHASES]
    if work.method == "grpo" and work.engine.kind in ("none", "server"):
        # Rollouts of these rows ran elsewhere, or their lengths are not known.
        found = [phase for phase in found if phase.name not in ("rollout", "weight sync", "log-prob pass")]
    return found


def predict_training(row: Mapping[str, Any], card: ModelCard) -> Prediction:
    work = workload_from_case(row, card)
    total_gib = row.get("gpu_total_gib")
    device_total = (total_gib or 80.0) * GIB
    metric = row.get("metric")
    phases = _step_phases(work, device_total)
    peak = max(phases, key=lambda phase: _in_metric(phase, work, metric))
    predicted = _in_metric(peak, work, metric)
    band = training_band(metric)
    low, high = _around(band, peak, work, predicted)
    fullest = max(phases, key=lambda phase: reserved_bytes(phase, work))
    need = reserved_bytes(fullest, work) + CONTEXT_GIB * GIB
    need_low, need_high = _around(band, fullest, work, need)
    if row.get("length_is_cap") or not row.get("seq_len") or work.stack.unpadded_share < 1:
        # Only a limit is known: real batches may have been far shorter.
        short = replace(work, tokens_per_row=max(1, int(work.tokens_per_row * SHORTEST_SHARE)))
        least = _step_phases(short, device_total)
        small = max(least, key=lambda phase: reserved_bytes(phase, short))
        low = min(low, _around(band, small, short, _in_metric(small, short, metric))[0])
        need_low = min(need_low, _around(band, small, short, reserved_bytes(small, short))[0])
    if row.get("length_is_cap"):
        # A limit asks for an upper estimate: half-way to the band's edge.
        predicted = (predicted + high) / 2
    verdict: Verdict | None = None
    if total_gib:
        verdict = _verdict(need_low, need_high, device_total)
    return Prediction(predicted / GIB, max(0.0, low) / GIB, high / GIB, verdict, peak.name)


def _around(band: Band, phase: Phase, work: Workload, total: float) -> tuple[float, float]:
    """The band around one phase's total in some metric."""
    exact = sum(
        line.num_bytes
        for line in phase.lines
        if line.name in EXACT_LINES
        and line.pool == "device"
        and (line.owner != "managed" or work.stack.paged_states_seen)
    )
    exact = min(exact, total)
    return band.around(exact, total - exact)


def _verdict(low: float, high: float, total: float) -> Verdict:
    if high <= total:
        return "fits"
    return "does_not_fit" if low > total else "tight"


# --------------------------------------------------------------------------------------------- engine start-ups


def _term(kv: Mapping[str, Any], name: str) -> float | None:
    value = kv.get(name)
    return None if value is None else float(value)


def predict_start_up(row: Mapping[str, Any], card: ModelCard) -> Prediction:
    """An engine start: cache bytes from the logged budget terms where they are there, from our own otherwise."""
    engine = replace(engine_from_case(row), max_num_seqs=1024, max_batched_tokens=8192)
    kv = row.get("kv") if isinstance(row.get("kv"), Mapping) else {}
    assert isinstance(kv, Mapping)
    total_gib = row.get("gpu_total_gib")
    terms = [_term(kv, name) for name in ("budget_gib", "weights_gib", "non_torch_gib", "activation_gib")]
    claim = terms[0]
    if claim is None and total_gib and engine.utilization:
        claim = engine.utilization * total_gib
    weights = terms[1] if terms[1] is not None else engine_weight_bytes(card, engine) / GIB
    non_torch = terms[2] if terms[2] is not None else (0.25 if engine.tensor_parallel == 1 else 2.1)
    activation = terms[3] if terms[3] is not None else activation_bytes(card, engine) / GIB
    cache: float | None = None
    logged = None not in terms or kv.get("kv_gib") is not None
    if None not in terms and claim is not None:
        cache = claim - weights - non_torch - activation
    elif kv.get("kv_gib") is not None:
        cache = float(kv["kv_gib"])
    elif claim is not None:
        cache = claim - weights - non_torch - activation
    if cache is None:
        return Prediction(reason="neither the engine's budget nor the device's size is given")
    request = kv.get("at_tokens") or engine.max_model_len
    capacity = _capacity(card, engine, cache, int(request)) if request else None
    verdict = _start_up_verdict(card, engine, kv, cache, claim, activation, terms[3] is None, total_gib)
    graphs = _term(kv, "graphs_gib")
    predicted = None if claim is None else claim + (0.9 if graphs is None else max(0.0, graphs))
    return Prediction(
        predicted,
        None if predicted is None else predicted - 0.9,
        None if predicted is None else predicted + 1.4,
        verdict,
        "engine start",
        None if capacity is None or not kv.get("at_tokens") or not logged else round(capacity.concurrency, 4),
        None if capacity is None else capacity.tokens,
    )


def _capacity(card: ModelCard, engine: EngineSettings, cache_gib: float, request: int) -> CacheCapacity:
    return cache_capacity(
        card,
        max(0.0, cache_gib) * GIB,
        request,
        element_bytes=engine.kv_element_bytes,
        tensor_parallel=engine.tensor_parallel,
        pipeline_parallel=engine.pipeline_parallel,
        old_engine=engine.version is not None and older_than(engine.version, (0, 9)),
    )


def _start_up_verdict(
    card: ModelCard,
    engine: EngineSettings,
    kv: Mapping[str, Any],
    cache: float,
    claim: float | None,
    activation: float,
    activation_guessed: bool,
    total_gib: float | None,
) -> Verdict | None:
    if total_gib is None:
        return None
    request = engine.max_model_len or kv.get("at_tokens") or 1
    cautious = cache
    if activation_guessed and kv.get("kv_gib") is None:
        # The engine's version is not known: an older one profiles more.
        cautious = cache - (activation_bytes(card, engine, old_sampler=True) / GIB - activation)
    if cache <= 0 or _capacity(card, engine, cache, int(request)).concurrency < 1:
        return "does_not_fit"
    graphs = _term(kv, "graphs_gib")
    outside = 0.0 if graphs is None else max(0.0, graphs)
    if claim is not None and claim + outside > total_gib:
        return "tight" if claim <= total_gib else "does_not_fit"
    if cautious <= 0 or _capacity(card, engine, cautious, int(request)).concurrency < 1:
        return "tight"
    return "fits"


def predict_case(row: Mapping[str, Any], cards: Mapping[str, ModelCard]) -> Prediction:
    """The prediction of one row. A row that cannot be predicted carries the reason instead."""
    shape = row.get("shape_of")
    if not shape or shape not in cards:
        return Prediction(reason="model shape not known")
    try:
        if row.get("method") == "vllm":
            return predict_start_up(row, cards[shape])
        return predict_training(row, cards[shape])
    except SparkError as error:
        return Prediction(reason=error.message)
    except (TypeError, ValueError, AttributeError) as error:
        return Prediction(reason=f"a field of the row is not of the expected kind: {error}")
