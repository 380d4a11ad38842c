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

from spark_rl.engines.trl_engine import TORCH_DTYPES, TrlEngine, hub_error, loaded_dtype
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
                dtype=TORCH_DTYPES[loaded_dtype(recipe)],
                load_in_4bit=model.quantization == "bnb-4bit",
                load_in_8bit=model.quantization == "bnb-8bit",
                full_finetuning=full,
                use_gradient_checkpointing=checkpointing,
                offload_embedding=memory.offload_embedding,
                unsloth_tiled_mlp=memory.unsloth_tiled_mlp,
                random_state=recipe.grpo.seed,
                **self._gpu_arguments(),
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

    def _gpu_arguments(self) -> dict[str, Any]:
        """Only where they are meant: the CPU backend hands names it does not know to the model class."""
        recipe = self.recipe
        shared = self.plan.route.name == "shared"
        found: dict[str, Any] = {"fast_inference": shared}
        if recipe.model.quantization == "fp8":
            found["load_in_fp8"] = True
        if self.place.has_cuda and recipe.tuning.method == "full":
            found["float32_mixed_precision"] = recipe.tuning.master_weights == "fp32"
        if shared:
            vllm = recipe.vllm
            found |= {
                "gpu_memory_utilization": vllm.gpu_memory_utilization,
                "max_lora_rank": recipe.lora.r,
                "float8_kv_cache": vllm.kv_cache_dtype == "fp8",
                "enforce_eager": vllm.enforce_eager,
                "enable_prefix_caching": vllm.enable_prefix_caching,
                "unsloth_vllm_standby": vllm.standby,
            }
        return found

    @contextlib.contextmanager
    def _inference(self) -> Iterator[None]:
        FastLanguageModel.for_inference(self.model)
        try:
            with super()._inference():
                yield
        finally:
            FastLanguageModel.for_training(self.model)
