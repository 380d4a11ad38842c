"""One training step or engine start, described so that its memory follows: model, tuning, batch, stack, engine.

In: built from a recipe (`from_recipe`) or a published case (`from_case`). Out: frozen `Workload`, `EngineSettings`.
Every size is a count or bytes; nothing here computes memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from spark_rl.fit.calibration import TRANSFORMERS, Stack
from spark_rl.modelcard import ModelCard

Method = Literal["sft", "dpo", "grpo", "pretrain", "vllm", "generate"]
Tuning = Literal["full", "lora", "qlora", "none"]
Checkpointing = Literal["off", "on", "unsloth", "offload"]
LossKind = Literal["full", "chunked", "fused"]
EngineKind = Literal["none", "native", "shared", "colocate", "server"]

DTYPE_BYTES: dict[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class EngineSettings:
    """The rollout engine beside the trainer, with the values it will really use."""

    kind: EngineKind = "none"
    utilization: float | None = None
    """Share of the *physical* device memory the engine claims, after the engine's own rewriting."""
    kv_cache_bytes: int | None = None
    """Explicit cache size, where it is set instead of a share."""
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    kv_element_bytes: float = 2
    weight_quant: str | None = None
    sleep_level: int = 0
    """0: stays awake while training. 1: weights copied to the host. 2: all dropped."""
    cuda_graphs: bool = True
    lora_rank: int | None = None
    version: str | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workload:
    """Everything memory depends on. Defaults describe plain bf16 fine-tuning of one sequence."""

    card: ModelCard
    method: Method = "grpo"
    tuning: Tuning = "full"
    quant: str | None = None
    double_quant: bool = False
    kbit_upcast: bool = False
    """prepare_model_for_kbit_training was called: unquantised parts and the residual stream are fp32."""
    experts_quantised: bool = False
    base_bytes: int = 2
    """Bytes of a weight that is not quantised and not trained (and of a trained one in full tuning)."""
    compute_bytes: int = 2
    fp16: bool = False
    """The 16-bit type is fp16."""
    autocast: bool = False
    """Mixed precision by autocast: weights keep their dtype, matrix products run in 16 bit."""
    adapter_bytes: int = 4
    lora_rank: int = 0
    lora_targets: tuple[str, ...] | str = ()
    lora_dropout: bool = False
    optimizer: str = "adamw_torch"
    optimizer_in_backward: bool = False
    offload_optimizer: bool = False
    park_optimizer: bool = False
    offload_embedding: bool = False
    rows: int = 1
    """Sequences in one forward (the micro-batch; twice that for DPO)."""
    tokens_per_row: int = 512
    completion_tokens_per_row: int | None = None
    """Positions whose logits are computed; None means all of them."""
    accumulates: bool = False
    """More than one micro-step: gradients are there during every forward but the first."""
    checkpointing: Checkpointing = "on"
    loss: LossKind = "full"
    logit_chunk_tokens: int | None = None
    tiled_mlp: bool = False
    attention: str = "sdpa"
    kernels: str | None = None
    stack: Stack = field(default=TRANSFORMERS)
    gpus: int = 1
    sharding: str | None = None
    reference_copy_bytes: int = 0
    """Bytes a weight of a separate reference model; 0 without one."""
    free_bytes: float | None = None
    """Device memory that is free once weights and states are there, for losses that size their chunks by it."""
    rollout_sequences: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    logprob_rows: int | None = None
    engine: EngineSettings = EngineSettings()
    notes: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens in one forward."""
        return self.rows * self.tokens_per_row

    @property
    def logit_tokens(self) -> int:
        per_row = self.tokens_per_row if self.completion_tokens_per_row is None else self.completion_tokens_per_row
        return self.rows * min(per_row, self.tokens_per_row)

    @property
    def shard(self) -> int:
        """Ways the weights and states are split (FSDP, ZeRO-3); 1 when every GPU holds all of them."""
        if self.sharding in ("fsdp", "zero3"):
            return max(1, self.gpus)
        return 1

    @property
    def state_shard(self) -> int:
        return max(1, self.gpus) if self.sharding in ("fsdp", "zero3", "zero2", "zero1") else 1

    @property
    def gradient_shard(self) -> int:
        return max(1, self.gpus) if self.sharding in ("fsdp", "zero3", "zero2") else 1
