"""Reading the trainer and its vLLM engine for comparison: checksums under the engine's names, log-probabilities, vocabulary.

Nothing is changed here. Works on TRL's colocated engine; a server's weights cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from spark_rl.rollout.canary import Sums

TokenIds = list[int]


def engine_model(trainer: Any) -> Any | None:
    """The torch module inside TRL's colocated engine, or None (server, native)."""
    generation = getattr(trainer, "vllm_generation", None)
    llm = getattr(generation, "llm", None)
    if llm is None:
        return None
    return llm.llm_engine.model_executor.driver_worker.model_runner.model


def fused_names(model: Any) -> dict[str, str]:
    """{"q_proj": "qkv_proj", ...}: which of the trainer's layers the engine keeps in one tensor."""
    mapping: Mapping[str, Sequence[str]] = getattr(model, "packed_modules_mapping", None) or {}
    return {part: fused for fused, parts in mapping.items() for part in parts}


def engine_name(name: str, fused: Mapping[str, str]) -> str:
    """The engine's name of a trainer's parameter."""
    return ".".join(fused.get(piece, piece) for piece in name.split("."))


def checksums(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, Sums]:
    """Sums per name; tensors of one name are added up. One transfer from the device at the end."""
    names: list[str] = []
    figures: list[torch.Tensor] = []
    for name, tensor in tensors:
        names.append(name)
        figures.append(torch.stack([tensor.sum(dtype=torch.float64), tensor.abs().sum(dtype=torch.float64)]).detach())
    found: dict[str, Sums] = {}
    for name, (total, magnitude) in zip(names, torch.stack(figures).tolist() if figures else (), strict=True):
        found[name] = found.get(name, Sums(0.0, 0.0)) + Sums(total, magnitude)
    return found


def trainer_tensors(model: Any) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """(name in the checkpoint's spelling, base weight, weight with every active adapter merged once), one at a time."""
    adapted = dict(_adapted_weights(model))
    for name, parameter in model.named_parameters():
        if "lora_" in name or "original_module" in name:
            continue
        plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
        plain = plain.replace("modules_to_save.default.", "").replace("_checkpoint_wrapped_module.", "")
        base = parameter.data
        layer = adapted.get(plain)
        yield plain, base, base if layer is None else _merged(layer, base)


def _adapted_weights(model: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(model, "peft_config"):
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, module in model.named_modules():
        if isinstance(module, BaseTunerLayer) and hasattr(module, "get_delta_weight"):
            yield name.removeprefix("base_model.model.") + ".weight", module


def _merged(layer: Any, base: torch.Tensor) -> torch.Tensor:
    merged = base
    for adapter in layer.active_adapters:
        if adapter in layer.lora_A:
            merged = merged + layer.get_delta_weight(adapter).to(base.dtype)
    return merged


def vocabulary(trainer_model: Any, engine: Any) -> tuple[int, int] | None:
    """Rows of the trainer's output head and tokens the engine's logits cover; None where the engine does not say."""
    head = trainer_model.get_output_embeddings()
    processor = getattr(engine, "logits_processor", None)
    size = getattr(processor, "org_vocab_size", None)
    return None if head is None or size is None else (int(head.weight.shape[0]), int(size))


def trainer_logprobs(
    trainer: Any, prompts: Sequence[TokenIds], completions: Sequence[TokenIds], temperature: float
) -> list[list[float]]:
    """Log-probability of every completion token by the trainer's own model, adapters on, no gradient."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    device = next(model.parameters()).device
    rows = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
    width = max(len(row) for row in rows)
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), trainer.accelerator.autocast():
            logits = model(input_ids=ids, attention_mask=mask).logits
    finally:
        model.train(was_training)
    logprobs = torch.log_softmax(logits[:, :-1].float() / temperature, dim=-1)
    chosen = logprobs.gather(-1, ids[:, 1:, None]).squeeze(-1)
    found = []
    for row, prompt, completion in zip(chosen.tolist(), prompts, completions, strict=True):
        found.append(row[len(prompt) - 1 : len(prompt) - 1 + len(completion)])
    return found


def engine_logprobs(llm: Any, prompts: Sequence[TokenIds], completions: Sequence[TokenIds]) -> list[list[float]]:
    """The same from the colocated engine, at temperature 1: it reads prompt and completion as one prompt."""
    from vllm import SamplingParams

    outputs = llm.generate(
        [{"prompt_token_ids": [*prompt, *completion]} for prompt, completion in zip(prompts, completions, strict=True)],
        sampling_params=SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0),
        use_tqdm=False,
    )
    found = []
    for output, prompt, completion in zip(outputs, prompts, completions, strict=True):
        per_token = output.prompt_logprobs[len(prompt) :]
        found.append([step[token].logprob for step, token in zip(per_token, completion, strict=True)])
    return found
