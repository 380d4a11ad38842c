"""Decoder layers that most families share: attention, gated or plain MLP, experts, norms.

In: `Fields` and a `Family` rule that says how a family differs from the plain decoder. Out: layers. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_rl.modelcard.fields import Fields
from spark_rl.modelcard.shape import Attention, Layer, LayerKind, Linear


@dataclass(frozen=True)
class Family:
    """How one model family differs from a plain gated decoder with two RMS norms and no biases."""

    tied: bool = False
    """Whether the output layer is the embedding when the configuration does not say."""
    qkv_bias: str | None = None
    """Configuration key that turns biases of q, k, v on; "yes" or None for always or never."""
    o_bias: str | None = None
    mlp_bias: str | None = None
    gated: bool = True
    fused_qkv: str | None = None
    fused_gate_up: str | None = None
    down_name: str = "down_proj"
    up_name: str = "up_proj"
    o_name: str = "o_proj"
    qk_norm: str | None = None
    """"head" (one vector per head size), "full" (over the whole width), or "key:NAME" (head, if that key is true)."""
    norms: int = 2
    norm_weights: int = 1
    """Vectors per norm: 1 RMS, 2 layer norm with bias, 0 none."""
    final_norm_weights: int | None = None
    head_bias: bool = False
    head_dim_default: int | None = None
    window: str = "none"
    """none | alternate (even layers slide) | every6 | every4 | every5 | all: which layers slide, if the config is silent."""
    extra_vectors: int = 0
    """Further scalars a layer holds."""


def bias_of(fields: Fields, rule: str | None) -> bool:
    if rule is None:
        return False
    if rule == "yes":
        return True
    default, _, key = rule.rpartition(":")
    return fields.flag(default == "on", key)


def head_dim(fields: Fields, family: Family) -> int:
    stated = fields.value("head_dim", "kv_channels", "attention_head_dim")
    if stated:
        return fields.size("head_dim", "kv_channels", "attention_head_dim")
    if family.head_dim_default:
        return family.head_dim_default
    return fields.size("hidden_size", "n_embd", "d_model") // fields.size("num_attention_heads", "n_head")


def attention_sizes(fields: Fields, family: Family, window: int | None) -> Attention:
    heads = fields.size("num_attention_heads", "n_head", "n_heads")
    kv_heads = fields.size_or(heads, "num_key_value_heads", "multi_query_group_num", "num_kv_heads")
    width = head_dim(fields, family)
    return Attention(heads=heads, kv_heads=kv_heads, head_dim=width, value_dim=width, window=window)


def attention_linears(fields: Fields, family: Family, attention: Attention, hidden: int) -> list[Linear]:
    query = attention.query_width
    key = attention.kv_heads * attention.head_dim
    qkv_bias = bias_of(fields, family.qkv_bias)
    output = Linear(family.o_name, query, hidden, bias_of(fields, family.o_bias), "attention")
    if family.fused_qkv:
        return [Linear(family.fused_qkv, hidden, query + 2 * key, qkv_bias, "attention"), output]
    return [
        Linear("q_proj", hidden, query, qkv_bias, "attention"),
        Linear("k_proj", hidden, key, qkv_bias, "attention"),
        Linear("v_proj", hidden, key, qkv_bias, "attention"),
        output,
    ]


def mlp_linears(family: Family, hidden: int, width: int, bias: bool = False) -> list[Linear]:
    down = Linear(family.down_name, width, hidden, bias)
    if not family.gated:
        return [Linear(family.up_name, hidden, width, bias), down]
    if family.fused_gate_up:
        return [Linear(family.fused_gate_up, hidden, 2 * width, bias), down]
    return [Linear("gate_proj", hidden, width, bias), Linear("up_proj", hidden, width, bias), down]


def expert_linears(
    hidden: int, width: int, experts: int, *, gated: bool = True, bias: bool = False, router_bias: bool = False
) -> list[Linear]:
    """Routed experts as the library stacks them, and their router (a bare parameter there)."""
    return [
        Linear("gate_up_proj" if gated else "up_proj", hidden, width * (2 if gated else 1), bias, "mlp", experts),
        Linear("down_proj", width, hidden, bias, "mlp", experts),
        Linear("gate", hidden, experts, router_bias, "router", is_parameter=True),
    ]


def qk_norm_vectors(fields: Fields, family: Family, attention: Attention) -> int:
    rule = family.qk_norm
    if rule is None:
        return 0
    if rule.startswith("key:"):
        return 2 * attention.head_dim if fields.flag(False, rule[4:]) else 0
    if rule == "full":
        return attention.query_width + attention.kv_heads * attention.head_dim
    return 2 * attention.head_dim


def layer_windows(fields: Fields, family: Family, layers: int) -> list[int | None]:
    """The sliding window of each layer, None where it attends to everything."""
    window = fields.value("sliding_window")
    if not window or fields.value("use_sliding_window") is False:
        return [None] * layers
    size = int(window)
    kinds = fields.value("layer_types")
    if isinstance(kinds, (list, tuple)) and len(kinds) == layers:
        return [size if "sliding" in str(kind) or "chunked" in str(kind) else None for kind in kinds]
    pattern = fields.value("sliding_window_pattern", "_sliding_window_pattern")
    if isinstance(pattern, int) and pattern > 1:
        return [None if (index + 1) % pattern == 0 else size for index in range(layers)]
    if family.window == "all":
        return [size] * layers
    if family.window == "alternate":
        return [size if index % 2 == 0 else None for index in range(layers)]
    if family.window.startswith("every"):
        every = int(family.window[5:])
        return [None if (index + 1) % every == 0 else size for index in range(layers)]
    return [None] * layers


def kind_of(window: int | None) -> LayerKind:
    return "full" if window is None else "sliding"


def dense_layer(fields: Fields, family: Family, window: int | None, mlp_width: int | None = None) -> Layer:
    """One plain decoder layer of the family."""
    hidden = fields.size("hidden_size", "n_embd", "d_model")
    attention = attention_sizes(fields, family, window)
    width = mlp_width or fields.size("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
    norm_weights = family.norm_weights
    qk = qk_norm_vectors(fields, family, attention)
    return Layer(
        kind=kind_of(window),
        linears=(
            *attention_linears(fields, family, attention, hidden),
            *mlp_linears(family, hidden, width, bias_of(fields, family.mlp_bias)),
        ),
        vector_count=family.norms * norm_weights * hidden + qk + family.extra_vectors,
        attention=attention,
        gated=family.gated,
        norms=family.norms,
        qk_norm=qk > 0,
        native_norm=family.norm_weights == 2,
    )


def moe_layer(
    fields: Fields,
    family: Family,
    window: int | None,
    *,
    experts: int,
    per_token: int,
    width: int,
    shared_width: int = 0,
    shared_gate: bool = False,
    expert_bias: bool = False,
    router_bias: bool = False,
    extra_vectors: int = 0,
) -> Layer:
    """A decoder layer whose MLP is a router over experts, beside an always-on one where `shared_width` is set."""
    hidden = fields.size("hidden_size")
    attention = attention_sizes(fields, family, window)
    qk = qk_norm_vectors(fields, family, attention)
    shared = (
        [
            Linear("gate_proj", hidden, shared_width),
            Linear("up_proj", hidden, shared_width),
            Linear("down_proj", shared_width, hidden),
        ]
        if shared_width
        else []
    )
    if shared_gate:
        shared.append(Linear("shared_expert_gate", hidden, 1, role="router"))
    return Layer(
        kind=kind_of(window),
        linears=(
            *attention_linears(fields, family, attention, hidden),
            *expert_linears(hidden, width, experts, gated=family.gated, bias=expert_bias, router_bias=router_bias),
            *shared,
        ),
        vector_count=family.norms * family.norm_weights * hidden + qk + family.extra_vectors + extra_vectors,
        attention=attention,
        gated=family.gated,
        experts_per_token=per_token,
        norms=family.norms,
        qk_norm=qk > 0,
        native_norm=family.norm_weights == 2,
    )
