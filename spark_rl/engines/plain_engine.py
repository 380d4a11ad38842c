"""The plain engine: TRL and Transformers, nothing patched. Fallback, and what Unsloth is compared with."""

from __future__ import annotations

import os
from typing import Any

from spark_rl.engines.trl_engine import TORCH_DTYPES, TrlEngine, hub_error, loaded_dtype
from spark_rl.errors import ConfigError
from spark_rl.models import resolve_model


class PlainEngine(TrlEngine):
    name = "plain"

    def _load(self) -> tuple[Any, Any]:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = self.recipe.model
        if model.quantization not in ("none", "bnb-4bit"):
            raise ConfigError(f"model.quantization {model.quantization!r} is not available in the plain engine")
        source = str(resolve_model(model.id))
        quantization = {}
        if model.quantization == "bnb-4bit":
            from transformers import BitsAndBytesConfig

            quantization["quantization_config"] = BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=model.double_quant,
                bnb_4bit_compute_dtype=TORCH_DTYPES[model.dtype],
            )
        try:
            loaded = AutoModelForCausalLM.from_pretrained(
                source,
                revision=model.revision,
                dtype=TORCH_DTYPES[loaded_dtype(self.recipe)],
                use_safetensors=True,
                **quantization,
            )
            tokenizer = AutoTokenizer.from_pretrained(source, revision=model.revision)
        except (OSError, ValueError) as error:
            raise hub_error(model.id, error) from None
        if self.place.has_cuda:
            loaded = loaded.to(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
        return loaded, tokenizer

    def _peft_config(self) -> Any:
        if self.recipe.tuning.method == "full":
            return None
        from peft import LoraConfig

        lora = self.recipe.lora
        return LoraConfig(
            r=lora.r,
            lora_alpha=lora.lora_alpha,
            lora_dropout=lora.lora_dropout,
            target_modules=list(lora.target_modules),
            bias="none",
            task_type="CAUSAL_LM",
        )
