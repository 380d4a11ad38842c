"""From a configuration to a model card, family by family.

In: a config.json as published, or the normalised form with the same meaning. Out: `ModelCard`. A family that is not in
the table is refused with the nearest known one: its memory is not guessed. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from spark_rl.errors import ConfigError, Refused, did_you_mean
from spark_rl.modelcard.dense import Family, dense_layer, layer_windows, moe_layer
from spark_rl.modelcard.fields import Fields
from spark_rl.modelcard.hybrids import (
    gemma_layer,
    granite_hybrid_layer,
    latent_moe_layer,
    nemotron_hybrid_layer,
    qwen_hybrid_layer,
    short_conv_layer,
)
from spark_rl.modelcard.shape import Layer, LayerRun, Linear, ModelCard


def _biased(**changes: Any) -> Family:
    """A family whose `attention_bias` key reaches q, k, v and o alike."""
    return replace(Family(qkv_bias="attention_bias", o_bias="attention_bias"), **changes)


# Dense decoders: what differs from the plain one, as read from each family's modelling code (transformers 5.17) or,
# for the four that publish their own code (qwen, baichuan, chatglm, mimo), from their published checkpoints' shapes.
DENSE: dict[str, Family] = {
    "llama": _biased(mlp_bias="mlp_bias"),
    "mistral": Family(window="all"),
    "ministral": Family(window="all"),
    "ministral3": Family(),
    "qwen2": Family(qkv_bias="yes"),
    "qwen3": _biased(qk_norm="head"),
    "qwen": Family(qkv_bias="yes", fused_qkv="c_attn", o_name="attn_c_proj", down_name="mlp_c_proj"),
    "gemma": _biased(tied=True, head_dim_default=256),
    "gemma2": _biased(tied=True, norms=4, head_dim_default=256, window="alternate"),
    "vaultgemma": _biased(tied=True, head_dim_default=256, window="alternate"),
    "gemma3_text": _biased(tied=True, norms=4, head_dim_default=256, qk_norm="head", window="every6"),
    "phi": Family(qkv_bias="yes", o_bias="yes", mlp_bias="yes", gated=False, up_name="fc1", down_name="fc2",
                  o_name="dense", norms=1, norm_weights=2, head_bias=True),
    "phi3": Family(fused_qkv="qkv_proj", fused_gate_up="gate_up_proj", window="all"),
    "gpt_neox": Family(qkv_bias="on:attention_bias", o_bias="on:attention_bias", mlp_bias="yes", gated=False,
                       fused_qkv="query_key_value", up_name="dense_h_to_4h", down_name="dense_4h_to_h",
                       o_name="dense", norm_weights=2),
    "gpt2": Family(tied=True, qkv_bias="yes", o_bias="yes", mlp_bias="yes", gated=False, fused_qkv="c_attn",
                   up_name="c_fc", down_name="mlp_c_proj", o_name="attn_c_proj", norm_weights=2),
    "gpt_bigcode": Family(tied=True, qkv_bias="yes", o_bias="yes", mlp_bias="yes", gated=False, fused_qkv="c_attn",
                          up_name="c_fc", down_name="mlp_c_proj", o_name="attn_c_proj", norm_weights=2),
    "opt": Family(tied=True, qkv_bias="on:enable_bias", o_bias="on:enable_bias", mlp_bias="on:enable_bias",
                  gated=False, up_name="fc1", down_name="fc2", o_name="out_proj", norm_weights=2),
    "bloom": Family(tied=True, qkv_bias="yes", o_bias="yes", mlp_bias="yes", gated=False,
                    fused_qkv="query_key_value", up_name="dense_h_to_4h", down_name="dense_4h_to_h", o_name="dense",
                    norm_weights=2),
    "falcon": Family(tied=True, qkv_bias="bias", o_bias="bias", mlp_bias="bias", gated=False,
                     fused_qkv="query_key_value", up_name="dense_h_to_4h", down_name="dense_4h_to_h", o_name="dense",
                     norm_weights=2),
    "starcoder2": Family(tied=True, qkv_bias="on:use_bias", o_bias="on:use_bias", mlp_bias="on:use_bias", gated=False,
                         up_name="c_fc", down_name="mlp_c_proj", norm_weights=2, window="all"),
    "stablelm": Family(qkv_bias="use_qkv_bias", norm_weights=2),
    "granite": _biased(mlp_bias="mlp_bias"),
    "glm": Family(qkv_bias="on:attention_bias", fused_gate_up="gate_up_proj"),
    "glm4": Family(qkv_bias="on:attention_bias", fused_gate_up="gate_up_proj", norms=4),
    "chatglm": Family(qkv_bias="on:add_qkv_bias", fused_qkv="query_key_value", fused_gate_up="dense_h_to_4h",
                      down_name="dense_4h_to_h", o_name="dense"),
    "baichuan": Family(fused_qkv="W_pack"),
    "ernie4_5": Family(tied=True, qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias"),
    "mimo": Family(qkv_bias="on:attention_bias"),
    "olmo": _biased(norm_weights=0),
    "olmo2": _biased(qk_norm="full"),
    "olmo3": _biased(qk_norm="full", window="every4"),
    "seed_oss": Family(qkv_bias="on:attention_bias", o_bias="attention_out_bias", mlp_bias="mlp_bias"),
    "arcee": _biased(mlp_bias="mlp_bias", gated=False),
    "apertus": _biased(gated=False, qk_norm="head", extra_vectors=2),
    "nemotron": _biased(mlp_bias="mlp_bias", gated=False, norm_weights=2),
    "hunyuan_v1_dense": _biased(qk_norm="head"),
    "smollm3": _biased(tied=True, mlp_bias="mlp_bias"),
    "cohere": _biased(tied=True, norms=1),
    "cohere2": _biased(tied=True, norms=1, window="every4"),
    "exaone4": Family(qk_norm="head", window="every4"),
    "helium": _biased(mlp_bias="mlp_bias"),
}  # fmt: skip

_MOE_PLAIN = _biased()
_MOE_QWEN3 = _biased(qk_norm="head")


def _layer_count(fields: Fields) -> int:
    return fields.size("num_hidden_layers", "n_layer", "num_layers", "n_layers")


def _dense(fields: Fields, family: Family) -> list[Layer]:
    windows = layer_windows(fields, family, _layer_count(fields))
    made = {window: dense_layer(fields, family, window) for window in set(windows)}
    return [made[window] for window in windows]


def _qwen_v1(fields: Fields, family: Family) -> list[Layer]:
    """Qwen 1 publishes twice the MLP width."""
    layer = dense_layer(fields, family, None, fields.size("intermediate_size") // 2)
    linears = [item for item in layer.linears if item.name not in ("gate_proj", "up_proj")]
    hidden, width = fields.size("hidden_size"), fields.size("intermediate_size") // 2
    renamed = (*linears, Linear("w1", hidden, width), Linear("w2", hidden, width))
    vectors = layer.vector_count
    return [Layer("full", renamed, vectors, attention=layer.attention)] * _layer_count(fields)


def _falcon(fields: Fields, family: Family) -> list[Layer]:
    new = fields.flag(False, "new_decoder_architecture")
    hidden = fields.size("hidden_size", "n_embed")
    heads = fields.size("num_attention_heads", "n_head")
    if new:
        kv_heads = fields.size_or(heads, "num_kv_heads", "num_key_value_heads", "n_head_kv")
    else:
        kv_heads = 1 if fields.flag(True, "multi_query") else heads
    norms = (fields.size_or(2, "num_ln_in_parallel_attn") if new else 1) if fields.flag(True, "parallel_attn") else 2
    merged = {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": fields.size_or(4 * hidden, "ffn_hidden_size", "intermediate_size"),
        "bias": fields.flag(False, "bias"),
    }
    layer = dense_layer(Fields(merged, fields.name), replace(family, norms=norms), None)
    return [layer] * _layer_count(fields)


def _gpt_style(fields: Fields, family: Family) -> list[Layer]:
    hidden = fields.size("hidden_size", "n_embd")
    heads = fields.size("num_attention_heads", "n_head")
    one = fields.flag(family.fused_qkv == "c_attn" and "multi_query" in fields.config, "multi_query")
    merged = {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": 1 if one else heads,
        "intermediate_size": fields.size_or(4 * hidden, "n_inner", "intermediate_size", "ffn_dim"),
        "enable_bias": fields.flag(True, "enable_bias"),
    }
    return [dense_layer(Fields(merged, fields.name), family, None)] * _layer_count(fields)


def _moe_each(fields: Fields, make: Callable[[int], Layer]) -> list[Layer]:
    made: dict[Any, Layer] = {}
    result = []
    for index in range(_layer_count(fields)):
        layer = make(index)
        result.append(made.setdefault(layer, layer))
    return result


def _qwen_moe(fields: Fields, family: Family, *, shared_gate: bool) -> list[Layer]:
    experts = fields.size("num_experts", "num_local_experts")
    step = fields.size_or(1, "decoder_sparse_step")
    dense_only = set(fields.value("mlp_only_layers") or ())

    def make(index: int) -> Layer:
        if index in dense_only or (index + 1) % step:
            return dense_layer(fields, family, None)
        return moe_layer(
            fields,
            family,
            None,
            experts=experts,
            per_token=fields.size("num_experts_per_tok"),
            width=fields.size("moe_intermediate_size"),
            shared_width=fields.size_or(0, "shared_expert_intermediate_size") if shared_gate else 0,
            shared_gate=shared_gate,
        )

    return _moe_each(fields, make)


def _all_moe(fields: Fields, family: Family, **extra: Any) -> list[Layer]:
    windows = layer_windows(fields, family, _layer_count(fields))

    def make(index: int) -> Layer:
        return moe_layer(
            fields,
            family,
            windows[index],
            experts=fields.size("num_local_experts", "num_experts"),
            per_token=fields.size("num_experts_per_tok", "experts_per_token", "moe_topk"),
            width=fields.size("moe_intermediate_size", "intermediate_size"),
            **extra,
        )

    return _moe_each(fields, make)


def _leading_dense(fields: Fields, family: Family) -> list[Layer]:
    """GLM-4.5 and dots.1: the first layers dense, then routed experts with shared ones beside them."""
    first = fields.size_or(0, "first_k_dense_replace")
    width = fields.size("moe_intermediate_size")

    def make(index: int) -> Layer:
        if index < first:
            return dense_layer(fields, family, None)
        return moe_layer(
            fields,
            family,
            None,
            experts=fields.size("n_routed_experts", "num_local_experts", "num_experts"),
            per_token=fields.size("num_experts_per_tok"),
            width=width,
            shared_width=width * fields.size_or(0, "n_shared_experts", "num_shared_experts"),
        )

    return _moe_each(fields, make)


def _ernie_moe(fields: Fields, family: Family) -> list[Layer]:
    experts = fields.size("moe_num_experts")
    width = fields.size("moe_intermediate_size")
    start, end = fields.size_or(0, "moe_layer_start_index"), fields.value("moe_layer_end_index")
    last = _layer_count(fields) - 1 if end is None or int(end) < 0 else int(end)
    step = fields.size_or(1, "moe_layer_interval")

    def make(index: int) -> Layer:
        if not start <= index <= last or (index + 1) % step:
            return dense_layer(fields, family, None)
        return moe_layer(
            fields,
            family,
            None,
            experts=experts,
            per_token=fields.size("moe_k", "num_experts_per_tok"),
            width=width,
            shared_width=width * fields.size_or(0, "moe_num_shared_experts"),
            extra_vectors=experts,
        )

    return _moe_each(fields, make)


def _llama4(fields: Fields, family: Family) -> list[Layer]:
    step = fields.size_or(1, "interleave_moe_layer_step")
    moe = fields.value("moe_layers")
    dense_width = fields.size_or(fields.size("intermediate_size"), "intermediate_size_mlp")
    window = fields.value("attention_chunk_size")

    def make(index: int) -> Layer:
        slides = int(window) if window and (index + 1) % 4 else None
        if (index not in moe) if isinstance(moe, (list, tuple)) else (index + 1) % step:
            return dense_layer(fields, family, slides, dense_width)
        width = fields.size("moe_intermediate_size", "intermediate_size")
        return moe_layer(
            fields,
            family,
            slides,
            experts=fields.size("num_local_experts"),
            per_token=fields.size_or(1, "num_experts_per_tok"),
            width=width,
            shared_width=width,
        )

    return _moe_each(fields, make)


def _nemotron_hybrid(fields: Fields) -> list[Layer]:
    pattern = fields.value("hybrid_override_pattern")
    if pattern is None:
        kinds = fields.value("layers_block_type", "layer_types") or ()
        codes = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "moe": "E", "mlp": "-"}
        pattern = "".join(codes.get(str(kind), "?") for kind in kinds)
    if not pattern or "?" in pattern:
        raise ConfigError(f"{fields.name}: no 'hybrid_override_pattern' says which layers are Mamba, MLP or attention")
    made = {code: nemotron_hybrid_layer(fields, code) for code in set(pattern)}
    return [made[code] for code in pattern]


def _gemma_new(fields: Fields, version: str) -> list[Layer]:
    layers = _layer_count(fields)
    every = "every5" if version == "3n" or (fields.value("layer_pattern") or "").startswith("every 5th") else "every6"
    windows = layer_windows(fields, Family(window=every), layers)
    shared_from = layers - fields.size_or(0, "num_kv_shared_layers")
    wide = fields.flag(False, "use_double_wide_mlp")

    def make(index: int) -> Layer:
        shares = index >= shared_from
        return gemma_layer(fields, windows[index], version=version, shares_cache=shares, wide=wide and shares)

    return _moe_each(fields, make)


_SPECIAL: dict[str, Callable[[Fields], list[Layer]]] = {
    "qwen": lambda f: _qwen_v1(f, DENSE["qwen"]),
    "falcon": lambda f: _falcon(f, DENSE["falcon"]),
    "gpt2": lambda f: _gpt_style(f, DENSE["gpt2"]),
    "gpt_bigcode": lambda f: _gpt_style(f, DENSE["gpt_bigcode"]),
    "opt": lambda f: _gpt_style(f, DENSE["opt"]),
    "bloom": lambda f: _gpt_style(f, DENSE["bloom"]),
    "qwen2_moe": lambda f: _qwen_moe(f, Family(qkv_bias="yes"), shared_gate=True),
    "qwen3_moe": lambda f: _qwen_moe(f, _MOE_QWEN3, shared_gate=False),
    "mixtral": lambda f: _all_moe(f, Family(window="all")),
    "granitemoe": lambda f: _all_moe(f, _MOE_PLAIN),
    "granitemoeshared": lambda f: _all_moe(f, _MOE_PLAIN, shared_width=f.size_or(0, "shared_intermediate_size")),
    "olmoe": lambda f: _all_moe(f, _biased(qk_norm="full")),
    "phimoe": lambda f: _all_moe(f, _biased(norm_weights=2)),
    "minimax_m2": lambda f: _all_moe(f, Family(qk_norm="full")),
    "gpt_oss": lambda f: _all_moe(
        f,
        Family(qkv_bias="on:attention_bias", o_bias="on:attention_bias", window="alternate"),
        expert_bias=True,
        router_bias=True,
        extra_vectors=f.size("num_attention_heads"),
    ),
    "hunyuan_v1_moe": lambda f: _all_moe(
        f, _MOE_QWEN3, shared_width=f.size("intermediate_size") * f.size_or(1, "num_shared_expert")
    ),
    "glm4_moe": lambda f: _leading_dense(f, Family(qkv_bias="attention_bias", qk_norm="key:use_qk_norm")),
    "dots1": lambda f: _leading_dense(f, _biased(qk_norm="head")),
    "ernie4_5_moe": lambda f: _ernie_moe(f, Family(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias")),
    "llama4_text": lambda f: _llama4(f, _biased()),
    "deepseek_v2": lambda f: _moe_each(f, lambda index: latent_moe_layer(f, index)),
    "deepseek_v3": lambda f: _moe_each(f, lambda index: latent_moe_layer(f, index)),
    "glm4_moe_lite": lambda f: _moe_each(f, lambda index: latent_moe_layer(f, index)),
    "qwen3_next": lambda f: _moe_each(f, lambda index: qwen_hybrid_layer(f, index, fused=True, moe=True)),
    "qwen3_5_text": lambda f: _moe_each(f, lambda index: qwen_hybrid_layer(f, index, fused=False, moe=False)),
    "qwen3_5_moe_text": lambda f: _moe_each(f, lambda index: qwen_hybrid_layer(f, index, fused=False, moe=True)),
    "lfm2": lambda f: _moe_each(f, lambda index: short_conv_layer(f, index, moe=False)),
    "lfm2_moe": lambda f: _moe_each(f, lambda index: short_conv_layer(f, index, moe=True)),
    "granitemoehybrid": lambda f: _moe_each(f, lambda index: granite_hybrid_layer(f, index)),
    "nemotron_h": _nemotron_hybrid,
    "gemma3n_text": lambda f: _gemma_new(f, "3n"),
    "gemma4_text": lambda f: _gemma_new(f, "4"),
}

_TIED_MOE = {"ernie4_5_moe", "lfm2", "lfm2_moe", "gemma3n_text", "gemma4_text"}

# A multimodal configuration keeps the language model in `text_config`; its own model_type names the family.
_TEXT_PART = {
    "gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text", "llama4": "llama4_text", "mistral3": "mistral",
}  # fmt: skip

_ALIASES = {"mimo_v2": "mimo", "kimi_k2": "deepseek_v3", "solar_open": "glm4_moe", "codellama": "llama"}


def known_families() -> tuple[str, ...]:
    return tuple(sorted({*DENSE, *_SPECIAL}))


def is_vision_config(config: Mapping[str, Any]) -> bool:
    """Whether a config.json describes a vision-language (or audio) model."""
    return any(key in config for key in ("vision_config", "audio_config", "visual", "vision_tower"))


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a configuration; itself for a text model."""
    inner = config.get("text_config") or config.get("llm_config")
    if not isinstance(inner, Mapping):
        return config
    kind = inner.get("model_type") or _TEXT_PART.get(str(config.get("model_type")), config.get("model_type"))
    return {**inner, "model_type": kind}


def card_from_config(
    config: Mapping[str, Any], name: str, *, source: str = "config.json", language_part: bool = False
) -> ModelCard:
    """The card of this configuration. Raises ConfigError for an unknown family, and Refused for a vision model
    unless `language_part` asks for its language model only."""
    if is_vision_config(config) and not language_part:
        raise Refused(
            f"{name} is a vision-language model; text-only GRPO teaches it to ignore the image",
            hint="use a text model, or the text-only checkpoint of the same family",
        )
    config = text_config(config)
    kind = str(config.get("model_type") or "")
    kind = _ALIASES.get(kind, kind)
    if kind not in DENSE and kind not in _SPECIAL:
        guess = did_you_mean(kind, known_families())
        raise ConfigError(
            f"{name}: the memory of model_type {kind!r} is not known, and guessing it would be worse than refusing",
            hint=f"{guess or 'known families: ' + ', '.join(known_families())}",
        )
    fields = Fields(config, name)
    family = DENSE.get(kind, Family(tied=kind in _TIED_MOE))
    layers = _SPECIAL[kind](fields) if kind in _SPECIAL else _dense(fields, family)
    if not layers:
        raise ConfigError(f"{name}: num_hidden_layers = 0 is not a model")
    return _assemble(fields, kind, family, layers, name, source)


def _assemble(fields: Fields, kind: str, family: Family, layers: list[Layer], name: str, source: str) -> ModelCard:
    hidden = fields.size("hidden_size", "n_embd", "d_model", "n_embed")
    vocab = fields.size("vocab_size", "padded_vocab_size")
    if not hidden or not vocab:
        raise ConfigError(f"{name}: hidden_size {hidden} and vocab_size {vocab} are not the sizes of a model")
    tied = fields.flag(family.tied, "tie_word_embeddings")
    embedding = vocab * hidden
    final = family.norm_weights if kind in DENSE else 1
    other = hidden * (2 if kind == "phimoe" else final)
    others: list[Linear] = []
    if kind in ("gpt2", "gpt_bigcode"):
        other += fields.size("max_position_embeddings", "n_positions") * hidden
    elif kind == "opt":
        other += (fields.size("max_position_embeddings") + 2) * hidden
    elif kind == "bloom":
        other += 2 * hidden
    elif kind in ("gemma3n_text", "gemma4_text"):
        per_input = fields.size_or(0, "hidden_size_per_layer_input")
        if per_input:
            width = len(layers) * per_input
            embedding += fields.size_or(vocab, "vocab_size_per_layer_input") * width
            others.append(Linear("per_layer_model_projection", hidden, width, role="other"))
            other += per_input
        if kind == "gemma3n_text":
            extra = fields.size_or(4, "altup_num_inputs") - 1
            others += [Linear("altup_projections", hidden, hidden, role="other")] * (2 * extra)
    head = 0 if tied else vocab * hidden
    head_bias = vocab if family.head_bias or (kind == "phimoe" and fields.flag(False, "lm_head_bias")) else 0
    positions = fields.value("max_position_embeddings", "n_positions", "seq_length", "model_max_length")
    return ModelCard(
        name=name,
        family=kind,
        hidden=hidden,
        vocab=vocab,
        runs=tuple(_runs(layers)),
        tied=tied,
        embedding_count=embedding,
        head_count=head,
        other_count=other + head_bias,
        other_linears=tuple(others),
        max_positions=int(positions) if isinstance(positions, int) else None,
        source=source,
    )


def _runs(layers: Iterable[Layer]) -> list[LayerRun]:
    """Equal layers counted together, in order of first appearance."""
    counts: dict[Layer, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    return [LayerRun(layer, count) for layer, count in counts.items()]
