"""The forecast's bytes against torch's own accounting of a real training step on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from spark_rl.fit.activations import (
    checkpoint_bytes_per_token,
    final_norm_bytes_per_token,
    saved_without_checkpointing,
)
from spark_rl.fit.weights import (
    adapter_parameters,
    base_model_bytes,
    gradient_bytes,
    optimizer_state_bytes,
)
from spark_rl.fit.workload import Workload
from spark_rl.modelcard import card_from_config

pytestmark = pytest.mark.train

SYNTHETIC: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_hidden_layers": 4,
    "vocab_size": 512,
}
MODELS: dict[str, tuple[str, dict[str, Any], int, int]] = {
    # name: family, sizes, rows, tokens
    "embedded": (
        "llama",
        {
            "hidden_size": 128, "intermediate_size": 384, "num_attention_heads": 2, "num_key_value_heads": 2,
            "head_dim": 64, "num_hidden_layers": 4, "vocab_size": 18, "tie_word_embeddings": True,
        },
        8,
        32,
    ),
    "SmolLM2-135M": (
        "llama",
        {
            "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3,
            "num_hidden_layers": 30, "vocab_size": 49152, "tie_word_embeddings": True,
        },
        1,
        16,
    ),
    "4-layer Llama": ("llama", SYNTHETIC, 2, 64),
    "4-layer Qwen3": ("qwen3", SYNTHETIC, 2, 64),
    "4-layer Gemma-2": ("gemma2", SYNTHETIC, 2, 64),
    "4-layer MoE": ("qwen3_moe", {**SYNTHETIC, "moe_intermediate_size": 128, "num_experts": 8, "num_experts_per_tok": 2}, 2, 64),
}  # fmt: skip
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


@dataclass(frozen=True)
class Counted:
    """Bytes as torch holds them after one step."""

    weights: int
    gradients: int
    state: int
    saved: int


def _step(name: str, dtype_name: str, lora: bool, checkpointing: bool) -> tuple[Counted, Workload]:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    family, sizes, rows, tokens = MODELS[name]
    torch.manual_seed(0)
    config = CONFIG_MAPPING[family](**sizes)
    dtype = getattr(torch, dtype_name)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(dtype)
    if lora:
        model = get_peft_model(model, LoraConfig(r=8, target_modules=list(ATTENTION), task_type="CAUSAL_LM"))
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if lora:
            model.enable_input_require_grads()
    held = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    saved: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=False)
    ids = torch.randint(0, config.vocab_size, (rows, tokens))
    inner = model.base_model.model.model if lora else model.model
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        hidden = inner(input_ids=ids, use_cache=False)[0]
    model.get_output_embeddings()(hidden).float().sum().backward()
    optimizer.step()
    moments = [value for state in optimizer.state.values() for value in state.values() if value.numel() > 1]
    counted = Counted(
        weights=sum(parameter.nbytes for parameter in model.parameters()),
        gradients=sum(parameter.grad.nbytes for parameter in trained if parameter.grad is not None),
        state=sum(value.nbytes for value in moments),
        saved=sum(saved.values()),
    )
    work = Workload(
        card=card_from_config({**config.to_dict(), "model_type": family}, name),
        method="sft",
        tuning="lora" if lora else "full",
        base_bytes=dtype.itemsize,
        compute_bytes=dtype.itemsize,
        lora_rank=8,
        lora_targets=ATTENTION,
        optimizer="adamw_torch",
        rows=rows,
        tokens_per_row=tokens,
        checkpointing="on" if checkpointing else "off",
    )
    return counted, work


def _predicted(work: Workload) -> Counted:
    each = (
        saved_without_checkpointing(work)
        if work.checkpointing == "off"
        else checkpoint_bytes_per_token(work) + final_norm_bytes_per_token(work)
    )
    return Counted(
        weights=round(base_model_bytes(work) + adapter_parameters(work) * work.adapter_bytes),
        gradients=round(gradient_bytes(work)),
        state=round(optimizer_state_bytes(work)),
        saved=round(work.tokens * each),
    )


SMALL = [name for name in MODELS if name != "SmolLM2-135M"]
# dtype, LoRA, checkpointing: every pair of settings once, not every combination.
KINDS = (("float32", False, False), ("bfloat16", False, True), ("bfloat16", True, False), ("float32", True, True))
STEPS = [
    *[(name, *kind) for name in SMALL for kind in KINDS],
    ("SmolLM2-135M", "float32", False, True),
    ("SmolLM2-135M", "bfloat16", True, False),
]


@pytest.mark.parametrize(("name", "dtype", "lora", "checkpointing"), STEPS)
def test_predicted_bytes_agree_with_torch_within_5_percent(
    name: str, dtype: str, lora: bool, checkpointing: bool
) -> None:
    counted, work = _step(name, dtype, lora, checkpointing)
    predicted = _predicted(work)
    for part in ("weights", "gradients", "state", "saved"):
        assert getattr(predicted, part) == pytest.approx(getattr(counted, part), rel=0.05), part


def test_adapters_are_counted_as_peft_makes_them() -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    config = CONFIG_MAPPING["llama"](**SYNTHETIC)
    model = get_peft_model(
        AutoModelForCausalLM.from_config(config), LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    expected = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    card = card_from_config({**config.to_dict(), "model_type": "llama"}, "t")
    assert card.lora_parameter_count(16, "all-linear") == expected
