"""The exact commands for training with a vLLM server and on more than one machine. Pure text."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

from spark_rl.errors import ConfigError
from spark_rl.recipe import Recipe

Parallel = Literal["ddp", "fsdp"]
PORT = 29500


@dataclass(frozen=True)
class Commands:
    """What to type on one machine, in order."""

    machine: str
    lines: tuple[str, ...]


def serve_command(recipe: Recipe) -> str:
    """`vllm serve` as TRL's server mode needs it: weights over NCCL, log-probabilities as sampled, developer routes on."""
    vllm = recipe.vllm
    words = [
        "vllm",
        "serve",
        recipe.model.id,
        "--weight-transfer-config",
        '{"backend": "nccl"}',
        "--logprobs-mode",
        "processed_logprobs",
        "--max-logprobs",
        "-1",
        "--dtype",
        recipe.model.dtype,
        "--max-model-len",
        str(vllm.max_model_len or recipe.model.max_seq_length),
        "--seed",
        str(recipe.grpo.seed),
    ]
    if recipe.model.revision:
        words += ["--revision", recipe.model.revision]
    if recipe.rollout.tensor_parallel_size > 1:
        words += ["--tensor-parallel-size", str(recipe.rollout.tensor_parallel_size)]
    if vllm.kv_cache_dtype != "auto":
        words += ["--kv-cache-dtype", vllm.kv_cache_dtype]
    if vllm.enforce_eager:
        words += ["--enforce-eager"]
    if not vllm.enable_prefix_caching:
        words += ["--no-enable-prefix-caching"]
    return f"VLLM_SERVER_DEV_MODE=1 {shlex.join(words)}"


def launch_commands(
    recipe: Recipe,
    profile: str,
    task: str,
    *,
    machines: int = 1,
    gpus: int = 1,
    parallel: Parallel = "ddp",
    server: bool = False,
    unified: bool = False,
    hosts: tuple[str, ...] = (),
) -> list[Commands]:
    """One entry a machine. `gpus` are trainer GPUs per machine. Raises ConfigError for what cannot be."""
    if machines < 1 or gpus < 1:
        raise ConfigError("a plan needs at least one machine and one GPU")
    if recipe.rollout.tensor_parallel_size > 1 and unified:
        raise ConfigError(
            f"rollout.tensor_parallel_size = {recipe.rollout.tensor_parallel_size}: never across two Sparks",
            "each Spark samples with its own replica (data parallel), or shard training with --parallel fsdp",
        )
    names = [*hosts, *(f"MACHINE_{index}" for index in range(len(hosts), machines + server))]
    found = []
    if server:
        found.append(Commands(f"{names[machines]} (server)", (serve_command(recipe),)))
    words = ["spark-rl", "run", "--profile", profile, "--task", task]
    if server:
        words += ["--server", f"http://{names[machines]}:8000"]
    if machines * gpus == 1:
        return [*found, Commands(f"{names[0]} (trainer)", (shlex.join(words),))]
    prepare = ["spark-rl", "probe", "--profile", profile, "--task", task]
    gate = (
        f"{shlex.join(prepare)}    # one process: makes the run and its probe",
        "spark-rl inspect sample && spark-rl inspect review && spark-rl inspect sign",
        "# RUN is the path of that run; there is no supervisor over several processes: watch memory with spark-rl monitor",
    )
    for index in range(machines):
        launch = shlex.join(accelerate_words(recipe, names[0], index, machines, gpus, parallel))
        first = gate if index == 0 else (f"# copy the run directory from {names[0]} to the same path",)
        role = f"{names[index]} (trainer, rank {index})" if machines > 1 else f"{names[index]} (trainer)"
        found.append(Commands(role, (*first, launch)))
    return found


def accelerate_words(recipe: Recipe, head: str, index: int, machines: int, gpus: int, parallel: Parallel) -> list[str]:
    words = ["accelerate", "launch", "--num_processes", str(machines * gpus), "--num_machines", str(machines)]
    if machines > 1:
        words += ["--machine_rank", str(index), "--main_process_ip", head, "--main_process_port", str(PORT)]
    if machines * gpus > 1 and parallel == "ddp":
        words += ["--multi_gpu"]
    if parallel == "fsdp":
        words += [
            "--use_fsdp",
            "--fsdp_version",
            "2",
            "--fsdp_auto_wrap_policy",
            "TRANSFORMER_BASED_WRAP",
            "--fsdp_reshard_after_forward",
            "true",
        ]
    words += [
        "--mixed_precision",
        "bf16" if recipe.grpo.bf16 else "no",
        "-m",
        "spark_rl.worker",
        "RUN",
        "--stages",
        "train",
    ]
    return words
