"""Predicting published measurements: from a row of a case file to a workload, and back to the row's own metric.

In: rows in the format of the public memory cases and the model shapes they name. Out: predictions. Nothing here looks
at a row's id, source, notes or measured value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_rl.fit.stacks import stack_for
from spark_rl.fit.workload import DTYPE_BYTES, EngineSettings, Workload
from spark_rl.modelcard import ModelCard


def _targets(row: Mapping[str, Any]) -> tuple[str, ...] | str:
    found = row.get("lora_targets")
    if found is None:
        return "all-linear"
    return found if isinstance(found, str) else tuple(found)


def workload_from_case(row: Mapping[str, Any], card: ModelCard) -> Workload:
    framework = row.get("framework") or "other"
    kernels = row.get("kernels")
    stack = stack_for(framework, kernels)
    tuning = row.get("tuning") or "none"
    compute = DTYPE_BYTES.get(row.get("compute_dtype") or "bf16", 2)
    asked = row.get("param_dtype")
    trained = DTYPE_BYTES.get(asked or "", 0)
    if tuning == "full":
        base = trained or (4 if stack.full_default_fp32 else 2)
    elif stack.base_follows_trained and trained:
        base = trained
    else:
        base = compute
    adapter = trained or stack.adapter_default_bytes
    if stack.adapter_bytes_quantised and tuning == "qlora":
        adapter = stack.adapter_bytes_quantised
    checkpointing = row.get("grad_checkpointing")
    mode = {True: "on", False: "off", None: "on"}.get(checkpointing, checkpointing)
    loss = {"full-logits": "full", "chunked": "chunked", "fused-ce": "fused"}.get(row.get("loss_impl") or "", "full")
    rows = int(row.get("micro_batch") or 1)
    if row.get("method") == "dpo":
        rows *= 2
    length = int(row.get("seq_len") or 0)
    if not length:
        length = int((row.get("max_completion_length") or 0) + stack.prompt_default) if row.get("max_completion_length") else 1024
    completion = row.get("max_completion_length") if row.get("method") == "grpo" else None
    autocast = row.get("autocast")
    engine = row.get("vllm") or {}
    quant = row.get("quant")
    return Workload(
        card=card,
        method=row.get("method") or "sft",
        tuning=tuning,
        quant=quant if quant and quant != "4-bit (kind not in the part read)" else ("gptq-4bit" if quant else None),
        double_quant=stack.double_quant_default if row.get("double_quant") is None else bool(row["double_quant"]),
        kbit_upcast=bool(row.get("kbit_upcast")) if row.get("kbit_upcast") is not None else (stack.kbit_default and tuning == "qlora" and not str(quant).startswith("gptq")),
        experts_quantised=stack.experts_are_modules or str(quant).startswith(("gptq", "fp8", "int8", "mxfp4")) or (framework == "unsloth" and card.family == "gpt_oss"),
        base_bytes=base,
        compute_bytes=compute,
        fp16=row.get("compute_dtype") == "fp16",
        autocast=(autocast not in (None, "none")) or (autocast is None and stack.autocast_default),
        adapter_bytes=adapter,
        lora_rank=int(row.get("lora_rank") or 16),
        lora_targets=_targets(row),
        optimizer=row.get("optimizer") or "adamw_torch",
        optimizer_in_backward=stack.paged_steps_in_backward and str(row.get("optimizer")).startswith("paged") and tuning == "full",
        rows=rows,
        tokens_per_row=length,
        completion_tokens_per_row=int(completion) if completion else None,
        accumulates=(row.get("grad_accum") or 1) > 1,
        checkpointing=mode,
        loss=loss,
        attention=row.get("attention") or "sdpa",
        kernels=kernels,
        stack=stack,
        gpus=int(row.get("n_gpus") or 1),
        sharding=row.get("sharding"),
        engine=EngineSettings(kind="none"),
    )
