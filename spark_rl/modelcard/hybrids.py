"""Layers that are no plain decoder: gated delta rule, Mamba-2, short convolution, latent attention, Gemma-3n and 4.

In: `Fields`. Out: layers, with the parameter names and shapes of the library's own modules. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from spark_rl.modelcard.dense import Family, attention_linears, expert_linears, mlp_linears
from spark_rl.modelcard.fields import Fields
from spark_rl.modelcard.shape import Attention, Layer, Linear

_PLAIN = Family()


def latent_attention(fields: Fields, hidden: int, bias: bool) -> tuple[Attention, list[Linear], int]:
    """Multi-head latent attention: sizes, linears, norm vectors. The cache keeps the compressed vector and the rope key."""
    heads = fields.size("num_attention_heads")
    query_rank = fields.value("q_lora_rank")
    latent = fields.size("kv_lora_rank")
    rope = fields.size("qk_rope_head_dim")
    plain = fields.size("qk_nope_head_dim")
    value = fields.size("v_head_dim")
    width = rope + plain
    linears: list[Linear] = []
    vectors = latent
    if query_rank:
        rank = fields.size("q_lora_rank")
        linears.append(Linear("q_a_proj", hidden, rank, bias, "attention"))
        linears.append(Linear("q_b_proj", rank, heads * width, False, "attention"))
        vectors += rank
    else:
        linears.append(Linear("q_proj", hidden, heads * width, False, "attention"))
    linears.append(Linear("kv_a_proj_with_mqa", hidden, latent + rope, bias, "attention"))
    linears.append(Linear("kv_b_proj", latent, heads * (plain + value), False, "attention"))
    linears.append(Linear("o_proj", heads * value, hidden, bias, "attention"))
    return Attention(heads, heads, width, value, None, latent + rope), linears, vectors


def latent_moe_layer(fields: Fields, index: int) -> Layer:
    """DeepSeek-V2/V3 and GLM-4.7-Flash: latent attention; dense first, then routed and shared experts."""
    hidden = fields.size("hidden_size")
    attention, linears, vectors = latent_attention(fields, hidden, fields.flag(False, "attention_bias"))
    experts = fields.size_or(0, "n_routed_experts", "num_local_experts", "num_experts")
    dense = not experts or index < fields.size_or(0, "first_k_dense_replace")
    kinds = fields.value("mlp_layer_types")
    if isinstance(kinds, (list, tuple)) and index < len(kinds):
        dense = kinds[index] == "dense"
    frequency = fields.size_or(1, "moe_layer_freq")
    if not dense and index % max(1, frequency):
        dense = True
    if dense:
        return Layer(
            "full",
            (*linears, *mlp_linears(_PLAIN, hidden, fields.size("intermediate_size"))),
            2 * hidden + vectors,
            attention=attention,
        )
    width = fields.size("moe_intermediate_size")
    shared = fields.size_or(0, "n_shared_experts", "num_shared_experts")
    return Layer(
        "full",
        (
            *linears,
            *expert_linears(hidden, width, experts),
            *(mlp_linears(_PLAIN, hidden, width * shared) if shared else ()),
        ),
        2 * hidden + vectors,
        attention=attention,
        experts_per_token=fields.size("num_experts_per_tok"),
    )


def delta_rule_layer(fields: Fields, *, fused: bool) -> tuple[list[Linear], int, int, int]:
    """Gated delta rule (Qwen3-Next, Qwen3.5): linears, vectors, convolution weights, state elements a sequence holds."""
    hidden = fields.size("hidden_size")
    key_heads, value_heads = fields.size("linear_num_key_heads"), fields.size("linear_num_value_heads")
    key_dim, value_dim = fields.size("linear_key_head_dim"), fields.size("linear_value_head_dim")
    key, value = key_heads * key_dim, value_heads * value_dim
    mixed = 2 * key + value
    if fused:
        inputs = [
            Linear("in_proj_qkvz", hidden, mixed + value, False, "attention"),
            Linear("in_proj_ba", hidden, 2 * value_heads, False, "attention"),
        ]
    else:
        inputs = [
            Linear("in_proj_qkv", hidden, mixed, False, "attention"),
            Linear("in_proj_z", hidden, value, False, "attention"),
            Linear("in_proj_b", hidden, value_heads, False, "attention"),
            Linear("in_proj_a", hidden, value_heads, False, "attention"),
        ]
    linears = [*inputs, Linear("out_proj", value, hidden, False, "attention")]
    kernel = fields.size_or(4, "linear_conv_kernel_dim")
    state = value_heads * key_dim * value_dim + mixed * kernel
    return linears, 2 * value_heads + value_dim, mixed * kernel, state


def gated_attention(fields: Fields) -> tuple[Attention, list[Linear], int]:
    """Attention whose query projection also yields an output gate (Qwen3-Next, Qwen3.5)."""
    hidden = fields.size("hidden_size")
    heads, kv_heads = fields.size("num_attention_heads"), fields.size("num_key_value_heads")
    width = fields.size_or(256, "head_dim")
    gate = 2 if fields.flag(True, "attn_output_gate") else 1
    bias = fields.flag(False, "attention_bias")
    linears = [
        Linear("q_proj", hidden, gate * heads * width, bias, "attention"),
        Linear("k_proj", hidden, kv_heads * width, bias, "attention"),
        Linear("v_proj", hidden, kv_heads * width, bias, "attention"),
        Linear("o_proj", heads * width, hidden, bias, "attention"),
    ]
    return Attention(heads, kv_heads, width, width), linears, 2 * width


def qwen_hybrid_layer(fields: Fields, index: int, *, fused: bool, moe: bool) -> Layer:
    """Qwen3-Next and Qwen3.5: three gated-delta layers, then one full attention layer."""
    hidden = fields.size("hidden_size")
    if moe:
        experts = fields.size("num_experts", "n_routed_experts")
        shared = fields.size_or(0, "shared_expert_intermediate_size")
        mlp = expert_linears(hidden, fields.size("moe_intermediate_size"), experts)
        if shared:
            mlp += [*mlp_linears(_PLAIN, hidden, shared), Linear("shared_expert_gate", hidden, 1, role="router")]
    else:
        mlp = mlp_linears(_PLAIN, hidden, fields.size("intermediate_size"))
    per_token = fields.size_or(0, "num_experts_per_tok") if moe else 0
    kinds = fields.value("layer_types")
    every = fields.size_or(4, "full_attention_interval")
    is_full = "full" in str(kinds[index]) if isinstance(kinds, (list, tuple)) and kinds else (index + 1) % every == 0
    if is_full:
        attention, linears, vectors = gated_attention(fields)
        return Layer(
            "full",
            (*linears, *mlp),
            2 * hidden + vectors,
            attention=attention,
            experts_per_token=per_token,
            qk_norm=True,
        )
    linears, vectors, conv, state = delta_rule_layer(fields, fused=fused)
    return Layer("linear", (*linears, *mlp), 2 * hidden + vectors, conv, experts_per_token=per_token, state_count=state)


def mamba_mixer(fields: Fields, inner: int | None = None) -> tuple[list[Linear], int, int, int]:
    """Mamba-2: linears, vectors, convolution weights, state elements."""
    hidden = fields.size("hidden_size")
    heads = fields.size("mamba_num_heads", "mamba_n_heads")
    width = inner or heads * fields.size("mamba_head_dim", "mamba_d_head")
    groups = fields.size_or(1, "n_groups", "mamba_n_groups")
    state = fields.size("ssm_state_size", "mamba_d_state")
    kernel = fields.size_or(4, "conv_kernel", "mamba_d_conv")
    mixed = width + 2 * groups * state
    bias = fields.flag(False, "use_bias", "mamba_proj_bias")
    linears = [
        Linear("in_proj", hidden, width + mixed + heads, bias, "attention"),
        Linear("out_proj", width, hidden, bias, "attention"),
    ]
    conv_bias = mixed if fields.flag(True, "use_conv_bias", "mamba_conv_bias") else 0
    return linears, 3 * heads + width + conv_bias, mixed * kernel, heads * (width // heads) * state + mixed * kernel


def nemotron_hybrid_layer(fields: Fields, code: str) -> Layer:
    """Nemotron-H: each layer is one mixer only: M Mamba, E experts, * attention, - MLP."""
    hidden = fields.size("hidden_size")
    plain = Family(gated=False, qkv_bias="attention_bias", o_bias="attention_bias")
    if code == "M":
        linears, vectors, conv, state = mamba_mixer(fields)
        return Layer("mamba", tuple(linears), hidden + vectors, conv, norms=1, state_count=state)
    if code == "*":
        heads, kv_heads = fields.size("num_attention_heads"), fields.size("num_key_value_heads")
        width = fields.size_or(hidden // heads, "head_dim", "attention_head_dim")
        attention = Attention(heads, kv_heads, width, width)
        return Layer(
            "full", tuple(attention_linears(fields, plain, attention, hidden)), hidden, attention=attention, norms=1
        )
    if code == "E":
        experts = fields.size("n_routed_experts")
        linears = expert_linears(hidden, fields.size("moe_intermediate_size"), experts, gated=False)
        shared = fields.size_or(0, "moe_shared_expert_intermediate_size")
        if shared:
            linears += mlp_linears(plain, hidden, shared)
        return Layer(
            "mlp", tuple(linears), hidden, gated=False, norms=1, experts_per_token=fields.size("num_experts_per_tok")
        )
    width = fields.size("intermediate_size")
    return Layer("mlp", tuple(mlp_linears(plain, hidden, width)), hidden, gated=False, norms=1)


def short_conv_layer(fields: Fields, index: int, *, moe: bool) -> Layer:
    """LFM2: short convolutions and a few attention layers."""
    hidden = fields.size("hidden_size")
    dense = not moe or index < fields.size_or(2, "num_dense_layers")
    if dense:
        width = fields.size("intermediate_size") if moe else _lfm2_width(fields)
        mlp = [Linear("w1", hidden, width), Linear("w3", hidden, width), Linear("w2", width, hidden)]
    else:
        mlp = expert_linears(hidden, fields.size("moe_intermediate_size"), fields.size("num_experts"))
    per_token = 0 if dense else fields.size("num_experts_per_tok")
    kinds = fields.value("layer_types")
    full = fields.value("full_attn_idxs")
    is_full = index in full if kinds is None and full is not None else "attention" in str((kinds or [])[index])
    if is_full:
        heads, kv_heads = fields.size("num_attention_heads"), fields.size("num_key_value_heads")
        head = fields.size_or(hidden // heads, "head_dim")
        attention = Attention(heads, kv_heads, head, head)
        family = Family(o_name="out_proj")
        return Layer(
            "full",
            (*attention_linears(fields, family, attention, hidden), *mlp),
            2 * hidden + 2 * head,
            attention=attention,
            experts_per_token=per_token,
            qk_norm=True,
        )
    kernel = fields.size_or(3, "conv_L_cache")
    bias = fields.flag(False, "conv_bias")
    linears = [
        Linear("in_proj", hidden, 3 * hidden, bias, "attention"),
        Linear("out_proj", hidden, hidden, bias, "attention"),
    ]
    return Layer(
        "conv",
        (*linears, *mlp),
        2 * hidden + (hidden if bias else 0),
        hidden * kernel,
        experts_per_token=per_token,
        state_count=hidden * kernel,
    )


def _lfm2_width(fields: Fields) -> int:
    """LFM2 publishes a width that is cut to two thirds and rounded up when block_auto_adjust_ff_dim is on."""
    width = fields.size("block_ff_dim", "intermediate_size")
    if not fields.flag(True, "block_auto_adjust_ff_dim"):
        return width
    multiplier = fields.value("block_ffn_dim_multiplier")
    step = fields.size_or(256, "block_multiple_of")
    scaled = int(2 * width / 3)
    if multiplier is not None:
        scaled = int(float(multiplier) * scaled)
    return step * ((scaled + step - 1) // step)


def _is_recurrent(kind: object) -> bool:
    """Mamba layers are called "mamba", or "linear_attention" in configurations of transformers 5."""
    return "mamba" in str(kind) or "linear" in str(kind)


def granite_hybrid_layer(fields: Fields, index: int) -> Layer:
    """Granite-4: Mamba or attention, then a shared MLP and, in the larger ones, experts."""
    hidden = fields.size("hidden_size")
    family = Family(qkv_bias="attention_bias", o_bias="attention_bias")
    shared = fields.size("shared_intermediate_size", "intermediate_size")
    mlp = [Linear("input_linear", hidden, 2 * shared), Linear("output_linear", shared, hidden)]
    experts = fields.size_or(0, "num_local_experts")
    if experts:
        mlp = [*expert_linears(hidden, fields.size("intermediate_size"), experts), *mlp]
    per_token = fields.size_or(0, "num_experts_per_tok") if experts else 0
    kinds = fields.value("layer_types", "layers_block_type")
    if isinstance(kinds, (list, tuple)) and _is_recurrent(kinds[index]):
        inner = fields.size_or(2, "mamba_expand") * hidden
        linears, vectors, conv, state = mamba_mixer(fields, inner)
        return Layer(
            "mamba", (*linears, *mlp), 2 * hidden + vectors, conv, experts_per_token=per_token, state_count=state
        )
    heads = fields.size("num_attention_heads")
    width = fields.size_or(hidden // heads, "head_dim")
    attention = Attention(heads, fields.size_or(heads, "num_key_value_heads"), width, width)
    linears = attention_linears(fields, family, attention, hidden)
    return Layer("full", (*linears, *mlp), 2 * hidden, attention=attention, experts_per_token=per_token)


def gemma_layer(fields: Fields, window: int | None, *, version: str, shares_cache: bool, wide: bool) -> Layer:
    """Gemma-3n and Gemma-4: per-layer inputs, shared caches, wider heads in full layers, experts in one size."""
    hidden = fields.size("hidden_size")
    heads = fields.size("num_attention_heads")
    is_full = window is None
    width = fields.size_or(256, "head_dim")
    kv_heads = fields.size_or(heads, "num_key_value_heads")
    same_kv = False
    if version == "4" and is_full:
        width = fields.size_or(512, "global_head_dim")
        same_kv = fields.flag(False, "attention_k_eq_v")
        if same_kv:
            kv_heads = fields.size_or(kv_heads, "num_global_key_value_heads")
    attention = Attention(heads, kv_heads, width, width, window, None, not shares_cache)
    linears = attention_linears(fields, _PLAIN, attention, hidden)
    vectors = 4 * hidden + 2 * width
    if shares_cache:
        linears = [item for item in linears if item.name not in ("k_proj", "v_proj")]
        vectors -= width
    elif same_kv:
        linears = [item for item in linears if item.name != "v_proj"]
    inner = fields.value("intermediate_size")
    size = int(inner[0]) if isinstance(inner, (list, tuple)) else fields.size("intermediate_size")
    linears = [*linears, *mlp_linears(_PLAIN, hidden, size * (2 if wide else 1))]
    per_input = fields.size_or(0, "hidden_size_per_layer_input")
    if per_input:
        linears.append(Linear("per_layer_input_gate", hidden, per_input, role="other"))
        linears.append(Linear("per_layer_projection", per_input, hidden, role="other"))
        vectors += hidden
    per_token = 0
    if version == "3n":
        inputs = fields.size_or(4, "altup_num_inputs")
        rank = fields.size_or(64, "laurel_rank")
        linears += [
            Linear("correction_coefs", inputs, inputs, role="other"),
            Linear("prediction_coefs", inputs, inputs * inputs, role="other"),
            Linear("modality_router", hidden, inputs, role="router"),
            Linear("linear_left", hidden, rank, role="other"),
            Linear("linear_right", rank, hidden, role="other"),
        ]
        vectors += 3 * hidden
    elif fields.value("num_experts") and fields.flag(True, "enable_moe_block"):
        experts = fields.size("num_experts")
        linears += [
            item if item.role != "router" else replace(item, is_parameter=False)
            for item in expert_linears(
                hidden, fields.size("moe_intermediate_size", "expert_intermediate_size"), experts
            )
        ]
        vectors += 4 * hidden + experts
        per_token = fields.size("num_experts_per_tok", "top_k_experts")
    return Layer(
        "full" if is_full else "sliding",
        tuple(linears),
        vectors,
        attention=attention,
        experts_per_token=per_token,
        norms=4,
        qk_norm=True,
    )
