"""The unsloth engine: FastLanguageModel under TRL's trainer. Its CPU backend runs here; the same class drives CUDA.

`unsloth` must be imported before trl and transformers, and its environment variables be set before that, so this
module imports it first and nothing heavy above it.
"""

from __future__ import annotations

import os

os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")  # no counting download at each load

from unsloth import FastLanguageModel  # isort: skip

import contextlib
from collections.abc import Iterator
from typing import Any

from spark_rl.engines.trl_engine import TORCH_DTYPES, TrlEngine, hub_error
from spark_rl.models import resolve_model


class UnslothEngine(TrlEngine):
    name = "unsloth"

    def _load(self) -> tuple[Any, Any]:
        recipe = self.recipe
        model, memory = recipe.model, recipe.memory
        full = recipe.tuning.method == "full"
        choices: dict[str, bool | str] = {"off": False, "on": True, "unsloth": "unsloth"}
        checkpointing = choices[memory.gradient_checkpointing]
        try:
            loaded, tokenizer = FastLanguageModel.from_pretrained(
                model_name=str(resolve_model(model.id)),
                revision=model.revision,
                max_seq_length=model.max_seq_length,
                dtype=TORCH_DTYPES[model.dtype],
                load_in_4bit=model.quantization == "bnb-4bit",
                load_in_8bit=model.quantization == "bnb-8bit",
                full_finetuning=full,
                use_gradient_checkpointing=checkpointing,
                offload_embedding=memory.offload_embedding,
                unsloth_tiled_mlp=memory.unsloth_tiled_mlp,
                random_state=recipe.grpo.seed,
                fast_inference=False,
                # The CPU backend hands names it does not know to the model class, so this one only where it is meant.
                **({"load_in_fp8": True} if model.quantization == "fp8" else {}),
            )
        except (OSError, ValueError) as error:
            raise hub_error(model.id, error) from None
        if not full:
            lora = recipe.lora
            loaded = FastLanguageModel.get_peft_model(
                loaded,
                r=lora.r,
                target_modules=list(lora.target_modules),
                lora_alpha=lora.lora_alpha,
                lora_dropout=lora.lora_dropout,
                bias="none",
                use_gradient_checkpointing=checkpointing,
                random_state=recipe.grpo.seed,
            )
        return loaded, tokenizer

    @contextlib.contextmanager
    def _inference(self) -> Iterator[None]:
        FastLanguageModel.for_inference(self.model)
        try:
            with super()._inference():
                yield
        finally:
            FastLanguageModel.for_training(self.model)
