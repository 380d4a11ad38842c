"""Memory and speed levers: under which name each reaches its library, and where it has no effect.

In: a recipe and a machine. Out: environment variables (to be set before the first heavy import), arguments for the vLLM engine
that TRL builds, and a note for every lever that does nothing, or something else, on this engine or host. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from spark_rl.host import Machine
from spark_rl.recipe import Recipe
from spark_rl.units import GIB

CPU_CACHE_GIB = 1
"""VLLM_CPU_KVCACHE_SPACE, whole GiB: the least the variable can say; a CPU run is a test or a toy."""


@dataclass(frozen=True)
class Note:
    """A setting that has no effect here, or another one than it says."""

    key: str
    text: str


def environment(recipe: Recipe, machine: Machine) -> dict[str, str]:
    """Variables of the worker. A switch that is off is written down as off: the caller's shell must not turn it on."""
    memory, vllm = recipe.memory, recipe.vllm
    if recipe.engine.name == "fake":
        return {}
    found: dict[str, str] = {}
    if recipe.engine.name == "unsloth":
        standby = recipe.rollout.kind == "unsloth_vllm" and vllm.standby
        found |= {
            "UNSLOTH_DISABLE_STATISTICS": "1",
            "UNSLOTH_VLLM_STANDBY": _switch(standby),
            "UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE": _switch(standby and vllm.standby_util_override),
            "UNSLOTH_OFFLOAD_OPTIMIZER_STATE": _switch(memory.offload_optimizer_state),
            "UNSLOTH_PARK_OPTIMIZER_DURING_ROLLOUT": _switch(memory.park_optimizer_during_rollout),
            "UNSLOTH_TILED_MLP": "arctic" if memory.unsloth_tiled_mlp else "0",
        }
    if machine.kind != "cpu" and (memory.alloc_conf or _sleeps(recipe)):
        # Unsloth switches expandable segments on unless the variable is set, and a sleeping engine cannot live with them.
        found["PYTORCH_ALLOC_CONF"] = memory.alloc_conf or "expandable_segments:False"
    if machine.kind == "cpu" and recipe.rollout.kind == "vllm_colocate":
        wanted = vllm.kv_cache_memory_bytes or CPU_CACHE_GIB * GIB
        found["VLLM_CPU_KVCACHE_SPACE"] = str(max(1, wanted // GIB))
        # Bound to fixed cores, vLLM's threads starve as soon as anything else runs there: 20 s became more than 150.
        found["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    return found


def _switch(on: bool) -> str:
    return "1" if on else "0"


def _sleeps(recipe: Recipe) -> bool:
    kind, vllm = recipe.rollout.kind, recipe.vllm
    return (kind == "unsloth_vllm" and vllm.standby) or (kind == "vllm_colocate" and vllm.sleep)


def llm_arguments(recipe: Recipe, machine: Machine) -> dict[str, Any]:
    """Arguments of `vllm.LLM` that GRPOConfig has no field for; TRL builds the engine, so they are added to its call."""
    if recipe.rollout.kind != "vllm_colocate" or recipe.engine.name == "fake":
        return {}
    vllm = recipe.vllm
    found: dict[str, Any] = {
        "dtype": recipe.model.dtype,
        "enforce_eager": vllm.enforce_eager,
        "enable_prefix_caching": vllm.enable_prefix_caching,
        "kv_cache_dtype": vllm.kv_cache_dtype,
    }
    if vllm.kv_cache_memory_bytes is not None and machine.kind != "cpu":
        found["kv_cache_memory_bytes"] = vllm.kv_cache_memory_bytes
    return found


Condition = Callable[[Recipe, Machine], bool]


def _no_vllm(recipe: Recipe, machine: Machine) -> bool:
    return recipe.rollout.kind == "native"


def _not_trl_vllm(recipe: Recipe, machine: Machine) -> bool:
    return recipe.rollout.kind in ("unsloth_vllm", "vllm_server")


def _not_unsloth_on_gpu(recipe: Recipe, machine: Machine) -> bool:
    return recipe.engine.name != "unsloth" or machine.kind == "cpu"


def _is_cpu(recipe: Recipe, machine: Machine) -> bool:
    return machine.kind == "cpu"


_NATIVE = "no effect: native rollouts use no vLLM"
_UNSLOTH_CUDA = "no effect: only Unsloth on a GPU has this"

NO_EFFECT: tuple[tuple[str, Condition, str], ...] = (
    *(
        (f"vllm.{key}", _no_vllm, _NATIVE)
        for key in (
            "sleep",
            "sleep_level",
            "standby",
            "gpu_memory_utilization",
            "kv_cache_memory_bytes",
            "max_model_len",
            "kv_cache_dtype",
            "enable_prefix_caching",
            "enforce_eager",
        )
    ),
    ("rollout.tensor_parallel_size", _no_vllm, _NATIVE),
    (
        "vllm.kv_cache_memory_bytes",
        lambda recipe, machine: recipe.rollout.kind == "unsloth_vllm",
        "no effect: Unsloth passes no such argument to its engine; gpu_memory_utilization sizes the cache",
    ),
    (
        "vllm.sleep",
        lambda recipe, machine: recipe.rollout.kind == "unsloth_vllm" and not recipe.vllm.standby,
        "no effect: Unsloth's own engine sleeps with vllm.standby",
    ),
    (
        "vllm.standby",
        lambda recipe, machine: recipe.rollout.kind == "vllm_colocate",
        "no effect: standby is Unsloth's own engine (rollout.kind = unsloth_vllm); here vllm.sleep decides",
    ),
    (
        "vllm.sleep_level",
        lambda recipe, machine: recipe.rollout.kind == "vllm_colocate" and recipe.vllm.sleep_level == 1,
        "in force is level 2: TRL's colocated engine always drops its weights and gets them pushed again",
    ),
    (
        "vllm.sleep",
        lambda recipe, machine: recipe.rollout.kind == "vllm_colocate" and machine.kind == "cpu",
        "no effect: vLLM cannot sleep on a CPU",
    ),
    (
        "vllm.gpu_memory_utilization",
        lambda recipe, machine: recipe.rollout.kind == "vllm_colocate" and machine.kind == "cpu",
        "no effect on a CPU: VLLM_CPU_KVCACHE_SPACE sizes the cache",
    ),
    *(
        (
            f"vllm.{key}",
            lambda recipe, machine: recipe.rollout.kind == "vllm_server",
            "no effect: the server was started with its own",
        )
        for key in (
            "sleep",
            "standby",
            "gpu_memory_utilization",
            "kv_cache_memory_bytes",
            "max_model_len",
            "kv_cache_dtype",
            "enable_prefix_caching",
            "enforce_eager",
        )
    ),
    *(
        (f"memory.{key}", _not_unsloth_on_gpu, _UNSLOTH_CUDA)
        for key in (
            "unsloth_grpo_mini_batch",
            "unsloth_logit_chunk_multiplier",
            "unsloth_tiled_mlp",
            "offload_optimizer_state",
            "park_optimizer_during_rollout",
            "offload_embedding",
        )
    ),
    (
        "memory.use_liger_kernel",
        lambda recipe, machine: recipe.engine.name == "unsloth" and machine.kind != "cpu",
        "no effect: Unsloth chunks the log-probabilities itself",
    ),
    (
        "memory.offload_optimizer_state",
        lambda recipe, machine: recipe.grpo.optim.startswith("paged"),
        "no effect: Unsloth leaves paged optimizers alone",
    ),
    (
        "memory.park_optimizer_during_rollout",
        lambda recipe, machine: recipe.grpo.optim.startswith("paged"),
        "no effect: Unsloth leaves paged optimizers alone",
    ),
    (
        "memory.offload_embedding",
        lambda recipe, machine: recipe.rollout.kind == "unsloth_vllm",
        "no effect: Unsloth's own vLLM reads the embedding on the GPU",
    ),
    ("memory.alloc_conf", _is_cpu, "no effect: it steers the CUDA allocator"),
    ("memory.memory_cap_gib", _is_cpu, "no effect: it caps device memory"),
    (
        "memory.gradient_checkpointing",
        lambda recipe, machine: (
            recipe.memory.gradient_checkpointing == "unsloth" and _not_unsloth_on_gpu(recipe, machine)
        ),
        'acts like "on": only Unsloth on a GPU copies checkpoints to the host',
    ),
    (
        "grpo.optim",
        lambda recipe, machine: (
            machine.kind == "cpu"
            and recipe.engine.name == "unsloth"
            and any(word in recipe.grpo.optim for word in ("8bit", "4bit", "paged", "bnb"))
        ),
        "becomes adamw_torch_fused: Unsloth's CPU backend has no other",
    ),
)
"""(key, where, what is said)"""

INERT: dict[str, Any] = {
    "vllm.sleep": False,
    "vllm.standby": False,
    "rollout.tensor_parallel_size": 1,
    "memory.unsloth_tiled_mlp": False,
    "memory.offload_optimizer_state": False,
    "memory.park_optimizer_during_rollout": False,
    "memory.offload_embedding": False,
    "memory.use_liger_kernel": False,
}
"""Values that ask for nothing; for other keys it is None."""


def lever_notes(recipe: Recipe, machine: Machine) -> Iterator[Note]:
    """A note for every lever that somebody set (profile, task or --set) and that does nothing here."""
    if recipe.engine.name == "fake":
        return
    said = set()
    for key, holds, text in NO_EFFECT:
        section, _, name = key.partition(".")
        value = getattr(getattr(recipe, section), name)
        origin = recipe.provenance.get(key)
        is_set = origin is not None and origin.source != "base" and value != INERT.get(key)
        if is_set and key not in said and holds(recipe, machine):
            said.add(key)
            yield Note(key, f"{key} = {value}: {text}")
    yield from _replaced(recipe, machine)


def _replaced(recipe: Recipe, machine: Machine) -> Iterator[Note]:
    """Values that a library replaces, known beforehand."""
    vllm = recipe.vllm
    total = machine.device_total_bytes
    if recipe.rollout.kind == "unsloth_vllm" and vllm.standby and not vllm.standby_util_override and total:
        tier = standby_utilization(total / GIB)
        if abs(tier - vllm.gpu_memory_utilization) > 0.005:
            yield Note(
                "vllm.gpu_memory_utilization",
                f"vllm.gpu_memory_utilization = {vllm.gpu_memory_utilization:g}: standby takes {tier:.3f} on this card; "
                "vllm.standby_util_override = true keeps yours",
            )


def standby_utilization(device_total_gib: float) -> float:
    """The share that Unsloth's standby puts in place of the asked one, by size of card: tier x 0.95 from vLLM 0.11 on.

    The size is rounded up to whole GiB: a 40 GB card (39.5 GiB) lies just below a boundary of the newest version and was
    reported above it in others (unsloth#3328); the larger share is the careful reading.
    """
    tiers = ((40.0, 0.925), (25.0, 0.9), (20.0, 0.825), (14.0, 0.8), (10.0, 0.775))
    tier = next((share for floor, share in tiers if math.ceil(device_total_gib) >= floor), 0.75)
    return tier * 0.95
