"""A trained run as files that other programs load: the adapter as it is, or the merged weights as safetensors.

Heavy (torch, transformers, peft); runs in the process of the `export` command. What was written is loaded again and
compared on a few prompts before it is called exported.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from spark_rl.errors import ConfigError, RunDirError, TrainingFailed
from spark_rl.models import resolve_model
from spark_rl.recipe import Recipe
from spark_rl.rundir import RunDir

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}

CHECK_PROMPTS = 4
"""Prompts whose logits are compared before and after."""

NOISE = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.01}
"""Largest mean absolute difference of log-probabilities that rounding of the merged weights explains, per dtype."""


@dataclass(frozen=True)
class Exported:
    path: Path
    kind: str
    """merged, adapter or full"""
    num_parameters: int
    max_mean_difference: float
    """Of log-probabilities between the run's model and what was written, over the check prompts."""
    note: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "kind": self.kind,
            "num_parameters": self.num_parameters,
            "mean_logprob_difference": self.max_mean_difference,
            "note": self.note,
        }


def export(run: RunDir, recipe: Recipe, out: Path, prompts: Sequence[str], as_adapter: bool = False) -> Exported:
    """Write the trained model of a finished run to `out`. Raises RunDirError when the run has none, ConfigError when
    `out` is taken or an adapter was asked of a full fine-tune, TrainingFailed when what was written does not agree."""
    if not run.model.is_dir():
        raise RunDirError(f"{run.name}: has no trained model yet", "it is written when training is finished")
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out}: exists and is not empty", "choose another folder with --out")
    has_adapter = (run.model / "adapter_config.json").is_file()
    if as_adapter and not has_adapter:
        raise ConfigError("this run trained all weights: there is no adapter", "leave out --adapter")
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    encoded = [tokenizer(prompt, return_tensors="pt")["input_ids"] for prompt in prompts[:CHECK_PROMPTS]]
    note = None
    if not has_adapter or as_adapter:
        _copy(run.model, out)
        kind = "adapter" if as_adapter else "full"
        reference = _with_adapter(recipe, run.model) if as_adapter else _load(str(run.model), recipe.model.dtype)
    else:
        kind = "merged"
        reference = _with_adapter(recipe, run.model)
        if recipe.model.quantization != "none":
            note = f"the adapter was trained on a {recipe.model.quantization} base and is merged into the 16-bit one"
    before = [_logprobs(reference, ids) for ids in encoded]
    if kind == "merged":
        merged = reference.merge_and_unload(safe_merge=True)
        merged.save_pretrained(out, safe_serialization=True)
        tokenizer.save_pretrained(out)
    del reference
    written = _with_adapter(recipe, out) if kind == "adapter" else _load(str(out), recipe.model.dtype)
    worst = max(
        ((_logprobs(written, ids) - old).abs().mean().item() for ids, old in zip(encoded, before, strict=True)),
        default=0.0,
    )
    if worst > NOISE[DTYPES[recipe.model.dtype]]:
        raise TrainingFailed(
            f"{out}: the written model differs from the trained one by {worst:.3g} in mean log-probability",
            "do not use it; please report this",
        )
    return Exported(out, kind, sum(parameter.numel() for parameter in written.parameters()), worst, note)


def _load(source: str, dtype: str, revision: str | None = None) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        source, revision=revision, dtype=DTYPES[dtype], use_safetensors=True
    ).eval()


def _with_adapter(recipe: Recipe, adapter: Path) -> Any:
    """The 16- or 32-bit base, of the revision that was trained, with the adapter on it, exactly once."""
    from peft import PeftModel

    base = _load(str(resolve_model(recipe.model.id)), recipe.model.dtype, recipe.model.revision)
    return PeftModel.from_pretrained(base, adapter).eval()


def _logprobs(model: Any, input_ids: torch.Tensor) -> torch.Tensor:
    """Log-probabilities (1, tokens, vocabulary) in fp32."""
    with torch.inference_mode():
        return torch.log_softmax(model(input_ids=input_ids).logits.float(), dim=-1)


def _copy(source: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        # training_args.bin is a pickle: nothing we write for others needs unpickling.
        if file.is_file() and file.suffix != ".bin":
            shutil.copyfile(file, out / file.name)
