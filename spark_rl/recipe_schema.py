"""The sections of a recipe: every key a profile, a task or `--set` may name, with its type and range.

Values and their reasons are not here: the base values are in `data/base.toml`, the rest in `profiles/*.toml`.
A key that may be unset (None) is left out of the files; every other key has a base value.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]

NUM_GENERATIONS_FLOOR = 8
"""Fewer completions a group make the group mean and deviation too noisy to learn from; the reference recipe uses 8."""


class Section(BaseModel):
    """One table of a profile. Unknown keys are errors; a resolved section never changes. Infinity is no value: JSON has none,
    so a run that holds it could not be read again."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, allow_inf_nan=False)


class ProfileSection(Section):
    title: str
    """One line: model class, tuning, machine."""
    size_class: str
    """0.5b, 1.5b, 3b, 7-8b, 14b, 32b, 30b-a3b, 70b, or tiny."""
    machine: str
    """Named machine class the profile was made for (see `spark-rl fit --help`)."""


class ModelSection(Section):
    id: str
    """Hub id, local path, a fetched model's name, or "embedded"."""
    revision: str | None = None
    """Hub revision; None takes the hub's default branch."""
    dtype: Literal["bfloat16", "float16", "float32"]
    """Data type of the base weights while training."""
    quantization: Literal["none", "bnb-4bit", "bnb-8bit", "fp8"]
    """Storage of the frozen base weights."""
    double_quant: bool
    """bnb-4bit only: quantise the block statistics too (0.516 instead of 0.563 bytes a weight)."""
    max_seq_length: Positive
    """Longest prompt + completion in tokens that the model is loaded for."""
    trust_remote_code: Literal[False] = False
    """Always off: code from a model repository is not run."""


class EngineSection(Section):
    name: Literal["unsloth", "plain", "fake"]
    """unsloth; plain = TRL + Transformers; fake = scripted, for tests of the surroundings."""


class TuningSection(Section):
    method: Literal["full", "lora", "qlora"]
    master_weights: Literal["fp32", "stochastic", "none"]
    """How a small step survives rounding: fp32 weights, stochastic rounding (torchao 8-bit AdamW), or neither."""


class LoraSection(Section):
    r: Positive
    lora_alpha: Positive
    lora_dropout: Annotated[float, Field(ge=0, lt=1)]
    target_modules: tuple[str, ...]


class GrpoSection(Section):
    """TRL's GRPOConfig names; all of them are passed explicitly, whatever a library's default is."""

    num_generations: Positive
    max_completion_length: Positive
    temperature: Annotated[float, Field(gt=0, lt=10)]
    top_p: Fraction
    top_k: NonNegative
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)]
    learning_rate: Annotated[float, Field(gt=0, le=1)]
    beta: Annotated[float, Field(ge=0)]
    per_device_train_batch_size: Positive
    gradient_accumulation_steps: Positive
    steps_per_generation: Positive | None = None
    """None: as many as gradient_accumulation_steps (on-policy)."""
    num_iterations: Positive
    max_steps: Positive
    loss_type: Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"]
    scale_rewards: Literal["group", "batch", "none"]
    importance_sampling_level: Literal["token", "sequence"]
    epsilon: Annotated[float, Field(gt=0)]
    epsilon_high: Annotated[float, Field(gt=0)]
    mask_truncated_completions: bool
    vllm_importance_sampling_correction: bool
    optim: str
    weight_decay: Annotated[float, Field(ge=0)]
    adam_beta1: Annotated[float, Field(ge=0, lt=1)]
    adam_beta2: Annotated[float, Field(ge=0, lt=1)]
    adam_epsilon: Annotated[float, Field(gt=0)]
    lr_scheduler_type: str
    warmup_steps: NonNegative
    max_grad_norm: Annotated[float, Field(gt=0)]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    """What numpy takes."""
    bf16: bool
    """bf16 autocast while training."""
    logging_steps: Positive
    save_steps: Positive
    save_total_limit: Annotated[int, Field(ge=2)]
    """Two at least: with one, a kill while a checkpoint is written leaves none that is whole."""


class RolloutSection(Section):
    kind: Literal["native", "unsloth_vllm", "vllm_colocate", "vllm_server"]
    server_base_url: str | None = None
    """vllm_server only: address of `vllm serve`; `spark-rl run --server URL` sets it."""
    server_timeout_seconds: Annotated[float, Field(gt=0)]
    """vllm_server only: how long to wait for the server to answer before giving up."""
    tensor_parallel_size: Positive
    """GPUs of one machine that share the engine's weights."""


class VllmSection(Section):
    """vLLM's and TRL's names; no effect with native rollouts."""

    sleep: bool
    sleep_level: Literal[1, 2]
    standby: bool
    """Unsloth's shared-weights engine sleeps between rollouts (UNSLOTH_VLLM_STANDBY)."""
    standby_util_override: bool
    """Keep gpu_memory_utilization as asked under standby (UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE), not Unsloth's own tier."""
    gpu_memory_utilization: Fraction
    kv_cache_memory_bytes: Positive | None = None
    max_model_len: Positive | None = None
    kv_cache_dtype: Literal["auto", "fp8"]
    enable_prefix_caching: bool
    enforce_eager: bool


class MemorySection(Section):
    gradient_checkpointing: Literal["off", "on", "unsloth"]
    """unsloth: checkpoints are copied to host memory."""
    unsloth_grpo_mini_batch: Positive | None = None
    """Number of mini-batches (Unsloth's name), None = its own choice."""
    unsloth_logit_chunk_multiplier: Positive | None = None
    unsloth_tiled_mlp: bool
    offload_optimizer_state: bool
    """Optimizer state in pinned host memory except inside its step (UNSLOTH_OFFLOAD_OPTIMIZER_STATE)."""
    park_optimizer_during_rollout: bool
    """Optimizer state and gradients in pinned host memory while sampling (UNSLOTH_PARK_OPTIMIZER_DURING_ROLLOUT)."""
    offload_embedding: bool
    use_liger_kernel: bool
    """TRL's chunked log-probabilities instead of full logits (plain engine)."""
    alloc_conf: str | None = None
    """PYTORCH_ALLOC_CONF."""
    memory_cap_gib: Annotated[float, Field(gt=0)] | None = None
    """Per-process cap on device memory."""
    force_offload: bool
    """Let the offload levers through on unified memory, where they free nothing."""


class CanarySection(Section):
    """Checks that the engine samples with the trainer's weights, and that the weights move at all."""

    logprob_every: Positive
    """Steps between comparisons of the sampler's and the trainer's log-probabilities; the first sync is always compared."""
    logprob_sequences: Positive
    """Completions compared each time."""
    moved_steps: Positive
    """Optimizer steps after which the share of changed weights is judged."""
    moved_share: Annotated[float, Field(ge=0, le=1)]
    """Below this share of changed trained weights the run is stopped; 0 only reports."""


class PromptSection(Section):
    max_prompt_length: Positive
    """Tokens; TRL has no such limit of its own, so it is kept here."""
    overlong: Literal["drop", "cut", "refuse"]
    """What happens to a longer prompt; always counted and said."""


class ProbeSection(Section):
    num_prompts: Positive
    num_samples: Annotated[int, Field(ge=2)]
    """Completions a prompt at the run's temperature."""
    low_temperature: Annotated[float, Field(gt=0)]


class InspectSection(Section):
    num_samples: Annotated[int, Field(ge=50, le=100)]
    """Completions a person reads before training."""


class EvalSection(Section):
    num_prompts: Positive
    """Held-out prompts, one sample each, before and after."""


class GuardSection(Section):
    """Floors on MemAvailable (unified memory) or host memory (discrete), and the heat ladder."""

    unified_shed_gib: Annotated[float, Field(gt=0)]
    unified_floor_gib: Annotated[float, Field(gt=0)]
    host_shed_gib: Annotated[float, Field(gt=0)]
    host_floor_gib: Annotated[float, Field(gt=0)]
    pause_celsius: Annotated[float, Field(gt=0)]
    stop_celsius: Annotated[float, Field(gt=0)]
    resume_celsius: Annotated[float, Field(gt=0)]
    sample_seconds: Annotated[float, Field(ge=0.5)]
    """Between rows of telemetry.jsonl while nothing happens. The guard looks every 0.5 s, up to 30 times a second when
    memory falls, whatever this says."""
    worker_budget_gib: Annotated[float, Field(gt=0)] | None = None
    """Host memory the worker's processes may hold at most, on a machine shared with others; None: what there is."""


SECTIONS: dict[str, type[Section]] = {
    "profile": ProfileSection,
    "model": ModelSection,
    "engine": EngineSection,
    "tuning": TuningSection,
    "lora": LoraSection,
    "grpo": GrpoSection,
    "rollout": RolloutSection,
    "vllm": VllmSection,
    "memory": MemorySection,
    "canary": CanarySection,
    "prompt": PromptSection,
    "probe": ProbeSection,
    "inspect": InspectSection,
    "eval": EvalSection,
    "guard": GuardSection,
}
