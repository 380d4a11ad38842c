"""Our counts against transformers itself: configurations built by the library, the model counted on the meta device."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_rl.modelcard import card_from_config

pytestmark = pytest.mark.train

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mixtral": {},
    "qwen2": {},
    "qwen2_moe": {},
    "qwen3_moe": {},
    "qwen3_next": {},
    "gemma": {},
    "gemma3_text": {},
    "gemma3n_text": {"num_hidden_layers": 12, "num_kv_shared_layers": 2},
    "gemma4_text": {"num_hidden_layers": 12, "num_kv_shared_layers": 2},
    "gpt_oss": {},
    "deepseek_v3": {},
    "llama4_text": {},
    "granitemoehybrid": {"layer_types": ["mamba", "mamba", "mamba", "attention"]},
    "lfm2": {},
    "falcon": {},
    "gpt_neox": {},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_count_equals_the_library_s_own(family: str) -> None:
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    config = CONFIG_MAPPING[family](**{"num_hidden_layers": 4, **FAMILIES[family]})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    expected = sum(parameter.numel() for parameter in model.parameters())
    # Once as a whole configuration, once as it is saved: only what differs from the defaults.
    for saved in (config.to_dict(), json.loads(config.to_json_string(use_diff=True))):
        assert card_from_config({**saved, "model_type": family}, family).parameter_count == expected
