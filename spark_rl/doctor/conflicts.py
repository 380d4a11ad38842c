"""Pairs of versions that are known not to work together, each with its symptom and what to do. Data and one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_rl.doctor.environment import Environment

Holds = Callable[[Environment], bool]


@dataclass(frozen=True)
class Conflict:
    packages: str
    symptom: str
    fix: str
    holds: Holds


def _at_least(package: str, *version: int) -> Holds:
    return lambda environment: (found := environment.version(package)) is not None and found >= version


def _below(package: str, *version: int) -> Holds:
    return lambda environment: (found := environment.version(package)) is not None and found < version


def _exactly(package: str, *version: int) -> Holds:
    return lambda environment: (found := environment.version(package)) is not None and found[: len(version)] == version


def _both(*conditions: Holds) -> Holds:
    return lambda environment: all(holds(environment) for holds in conditions)


def _no_gpu(environment: Environment) -> bool:
    return not environment.gpus


CONFLICTS: tuple[Conflict, ...] = (
    Conflict(
        "trl >= 1.15 without a GPU",
        "GRPO calls a Triton kernel unconditionally: 'RuntimeError: 0 active drivers' at the first step",
        "trl 1.14.2 runs without a GPU: scripts/setup",
        _both(_at_least("trl", 1, 15), _no_gpu),
    ),
    Conflict(
        "trl < 1.10 with vLLM sleep mode",
        "the sampler answers with the initial weights at every step, without a word",
        "trl 1.10.0 or newer: scripts/setup",
        _below("trl", 1, 10),
    ),
    Conflict(
        "trl > 1.15 beside unsloth",
        "unsloth's metadata stops at 1.15; its patches may silently not apply",
        "the pinned pair: scripts/setup",
        _both(_at_least("trl", 1, 15, 1), lambda environment: environment.version("unsloth") is not None),
    ),
    Conflict(
        "vllm 0.10.x or 0.14.x with unsloth standby",
        "unsloth raises when standby is asked for",
        "vllm 0.30.0: scripts/setup",
        _both(
            lambda environment: environment.version("unsloth") is not None,
            lambda environment: _exactly("vllm", 0, 10)(environment) or _exactly("vllm", 0, 14)(environment),
        ),
    ),
    Conflict(
        "vllm newer than 0.30 with trl 1.14",
        "trl names 0.30.0 as the newest it supports; colocated engines of newer ones fail at weight sync",
        "vllm 0.30.0: scripts/setup",
        _both(_at_least("vllm", 0, 31), _exactly("trl", 1, 14)),
    ),
    Conflict(
        "vllm with transformers < 5",
        "unsloth turns vLLM off for the process when vLLM wants transformers 5",
        "transformers 5.17.0: scripts/setup",
        _both(_at_least("vllm", 0, 30), _below("transformers", 5)),
    ),
    Conflict(
        "unsloth and unsloth_zoo of different releases",
        "attribute errors while patching TRL, or stock TRL used with one warning",
        "install the same release of both: scripts/setup",
        lambda environment: (
            environment.version("unsloth") is not None
            and environment.version("unsloth_zoo") is not None
            and (environment.packages or {})["unsloth"] != (environment.packages or {})["unsloth_zoo"]
        ),
    ),
    Conflict(
        "unsloth 2026.9.4",
        "says that there is no GPU where there is one",
        "unsloth 2026.10.9: scripts/setup",
        _exactly("unsloth", 2026, 9, 4),
    ),
    Conflict(
        "pynvml beside nvidia-ml-py",
        "two packages own one module name; which one answers depends on the order of installation",
        "pip uninstall pynvml (nvidia-ml-py stays)",
        lambda environment: (
            environment.version("pynvml") is not None and environment.version("nvidia-ml-py") is not None
        ),
    ),
    Conflict(
        "torchao <= 0.16 with this torch",
        "8-bit optimizers with stochastic rounding fail to compile",
        "torchao 0.18.0: scripts/setup",
        _both(_below("torchao", 0, 17), _at_least("torch", 2, 13)),
    ),
)


def standing_conflicts(environment: Environment) -> list[Conflict]:
    """The known conflicts that this environment has."""
    return [conflict for conflict in CONFLICTS if conflict.holds(environment)]
