"""The shape of a language model: which matrices it has, and what they cost in weights and cache.

In: nothing (plain types). Out: `ModelCard`, layers grouped in runs of equal layers, from which exact parameter totals,
LoRA sizes, cache bytes per token and the number of unquantised weights follow. Pure arithmetic, no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

LayerKind = Literal["full", "sliding", "linear", "mamba", "conv", "mlp"]
LinearRole = Literal["attention", "mlp", "router", "other"]


@dataclass(frozen=True)
class Linear:
    """One matrix of a layer that the library holds as a linear module, or one 3-D tensor of stacked experts."""

    name: str
    inputs: int
    outputs: int
    bias: bool = False
    role: LinearRole = "mlp"
    experts: int = 0
    """0: an ordinary linear module. n: n matrices stacked in one 3-D parameter, which 4-bit loading leaves alone."""
    is_parameter: bool = False
    """A bare matrix, not a linear module (some routers): never quantised, never a LoRA target."""

    @property
    def weight_count(self) -> int:
        return self.inputs * self.outputs * max(1, self.experts)

    @property
    def bias_count(self) -> int:
        return self.outputs * max(1, self.experts) if self.bias else 0

    @property
    def parameter_count(self) -> int:
        return self.weight_count + self.bias_count

    @property
    def is_quantisable(self) -> bool:
        """4- and 8-bit loading converts linear modules only."""
        return self.experts == 0 and not self.is_parameter


@dataclass(frozen=True)
class Attention:
    """Sizes of one attention block; `latent` is set where the cache keeps a compressed vector instead of K and V."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window: int | None = None
    latent: int | None = None
    keeps_cache: bool = True
    """False where the layer reads an earlier layer's cache."""

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def output_width(self) -> int:
        return self.heads * self.value_dim

    @property
    def cache_elements_per_token(self) -> int:
        if not self.keeps_cache:
            return 0
        if self.latent is not None:
            return self.latent
        return self.kv_heads * (self.head_dim + self.value_dim)


@dataclass(frozen=True)
class Layer:
    """One decoder layer."""

    kind: LayerKind
    linears: tuple[Linear, ...]
    vector_count: int
    """Parameters of norms, per-head scales and other one-dimensional tensors."""
    tensor_count: int = 0
    """Parameters of convolutions and other tensors that are no linear module."""
    attention: Attention | None = None
    gated: bool = True
    """The MLP multiplies two branches (gate and up)."""
    experts_per_token: int = 0
    """Routed experts a token passes through; 0 in a dense layer."""
    norms: int = 2
    """Norms over the hidden width that are run on the residual stream."""
    qk_norm: bool = False
    native_norm: bool = False
    """Norms are torch's layer norm, which saves only its input."""
    state_count: int = 0
    """Elements of recurrent state one sequence holds (linear attention, Mamba, short convolution)."""

    @property
    def parameter_count(self) -> int:
        return sum(linear.parameter_count for linear in self.linears) + self.vector_count + self.tensor_count

    @property
    def quantisable_count(self) -> int:
        return sum(linear.weight_count for linear in self.linears if linear.is_quantisable)

    @property
    def expert_count(self) -> int:
        """Weights held in stacked expert tensors."""
        return sum(linear.parameter_count for linear in self.linears if linear.experts)

    @property
    def is_moe(self) -> bool:
        return any(linear.experts for linear in self.linears)


@dataclass(frozen=True)
class LayerRun:
    layer: Layer
    count: int


@dataclass(frozen=True)
class ModelCard:
    """All that memory and time need to know about one language model."""

    name: str
    family: str
    """The `model_type` of its configuration."""
    hidden: int
    vocab: int
    runs: tuple[LayerRun, ...]
    tied: bool
    """The output layer is the embedding."""
    embedding_count: int
    """All embedding tables, the per-layer ones of Gemma-3n and 4 too."""
    head_count: int
    """The output layer's own weights; 0 when tied."""
    other_count: int
    """Final norm, learned positions, projections outside the layers."""
    other_linears: tuple[Linear, ...] = ()
    max_positions: int | None = None
    source: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def layers(self) -> int:
        return sum(run.count for run in self.runs)

    @property
    def parameter_count(self) -> int:
        in_layers = sum(run.count * run.layer.parameter_count for run in self.runs)
        outside = sum(linear.parameter_count for linear in self.other_linears)
        return in_layers + outside + self.embedding_count + self.head_count + self.other_count

    @property
    def quantisable_count(self) -> int:
        """Weights that 4-bit and 8-bit loading converts: linear modules, not the output layer, not stacked experts."""
        in_layers = sum(run.count * run.layer.quantisable_count for run in self.runs)
        return in_layers + sum(linear.weight_count for linear in self.other_linears if linear.is_quantisable)

    @property
    def quantised_tensor_count(self) -> int:
        return sum(run.count * sum(item.is_quantisable for item in run.layer.linears) for run in self.runs)

    @property
    def expert_count(self) -> int:
        return sum(run.count * run.layer.expert_count for run in self.runs)

    @property
    def vector_count(self) -> int:
        return sum(run.count * run.layer.vector_count for run in self.runs)

    @property
    def is_moe(self) -> bool:
        return any(run.layer.is_moe for run in self.runs)

    @property
    def active_parameter_count(self) -> int:
        """Parameters one token passes through: routed experts count by the share that is chosen."""
        total = self.head_count or self.vocab * self.hidden
        for run in self.runs:
            for linear in run.layer.linears:
                share = run.layer.experts_per_token / linear.experts if linear.experts else 1.0
                total += int(run.count * linear.parameter_count * share)
        return total + sum(linear.parameter_count for linear in self.other_linears)

    @property
    def decode_weight_count(self) -> int:
        """Weights read for every token at batch 1 (an embedding row is nothing beside them)."""
        return self.active_parameter_count

    @property
    def widest_linear_count(self) -> int:
        """Weights of the largest single linear module in the layers."""
        return max((item.weight_count for item in self.each_linear() if not item.experts), default=0)

    @property
    def head_output_count(self) -> int:
        return self.vocab * self.hidden

    def each_linear(self) -> Iterator[Linear]:
        """Each distinct linear of each run, once."""
        for run in self.runs:
            yield from run.layer.linears
        yield from self.other_linears

    def cache_elements_per_token(self) -> int:
        """Elements that all caching layers together add for one token (windows not taken into account)."""
        return sum(run.count * run.layer.attention.cache_elements_per_token for run in self.runs if run.layer.attention)

    def cache_bytes_per_token(self, bytes_per_element: float = 2) -> float:
        return self.cache_elements_per_token() * bytes_per_element

    def state_bytes_per_sequence(self, bytes_per_element: float = 4) -> float:
        return sum(run.count * run.layer.state_count for run in self.runs) * bytes_per_element

    def lora_parameter_count(self, rank: int, targets: Sequence[str] | str, *, experts: bool = True) -> int:
        """Adapter parameters: rank x (inputs + outputs) for every targeted linear, in every expert where targeted."""
        total = 0
        for run in self.runs:
            for linear in run.layer.linears:
                if linear.experts and not experts:
                    continue
                if is_lora_target(linear, targets):
                    total += run.count * rank * (linear.inputs + linear.outputs) * max(1, linear.experts)
        names = () if isinstance(targets, str) else targets
        if any(_plain(name) in ("lm_head", "embed_out", "output_layer") for name in names):
            total += rank * (self.hidden + self.vocab)
        if any(_plain(name) in ("embed_tokens", "wte", "word_embeddings") for name in names):
            total += rank * (self.hidden + self.vocab)
        return total


# What people write for a target, and the modules it reaches where the library fuses projections.
_FUSED: dict[str, tuple[str, ...]] = {
    "q_proj": ("qkv_proj", "query_key_value", "c_attn", "W_pack", "q_b_proj", "q_a_proj"),
    "k_proj": ("qkv_proj", "query_key_value", "c_attn", "W_pack", "kv_a_proj_with_mqa"),
    "v_proj": ("qkv_proj", "query_key_value", "c_attn", "W_pack", "kv_b_proj"),
    "o_proj": ("dense", "out_proj", "attn_c_proj"),
    "gate_proj": ("gate_up_proj", "w1", "dense_h_to_4h", "fc1", "c_fc", "input_linear"),
    "up_proj": ("gate_up_proj", "w3", "dense_h_to_4h", "fc1", "c_fc", "input_linear"),
    "down_proj": ("w2", "dense_4h_to_h", "fc2", "mlp_c_proj", "output_linear"),
    "q": ("q_proj", "qkv_proj", "query_key_value"),
    "k": ("k_proj", "qkv_proj"),
    "v": ("v_proj", "qkv_proj"),
    "c_proj": ("attn_c_proj", "mlp_c_proj"),
    "mlp": (
        "gate_proj",
        "up_proj",
        "down_proj",
        "gate_up_proj",
        "fc1",
        "fc2",
        "w1",
        "w2",
        "w3",
        "dense_h_to_4h",
        "dense_4h_to_h",
        "c_fc",
        "mlp_c_proj",
    ),
}
_EVERYTHING = ("all-linear", "all", "all_linear")


def _plain(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def is_lora_target(linear: Linear, targets: Sequence[str] | str) -> bool:
    """Whether a target list as people write it reaches this linear. "all-linear" means every linear module."""
    if isinstance(targets, str):
        if targets in _EVERYTHING:
            return linear.is_quantisable and linear.role != "router"
        targets = (targets,)
    names = {_plain(target) for target in targets}
    if names & set(_EVERYTHING):
        return linear.is_quantisable and linear.role != "router"
    if linear.experts:
        return "experts" in names or linear.name in names
    if linear.is_parameter:
        return False
    if linear.name in names:
        return True
    return any(linear.name in _FUSED.get(name, ()) for name in names)
