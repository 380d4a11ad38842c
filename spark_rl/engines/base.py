"""The protocol of an engine and the data that crosses it. Imports nothing heavy, so that tests of the surroundings can
use the fake engine without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from spark_rl.dataset import Example, Prompt
from spark_rl.recipe import Recipe
from spark_rl.rewards.composite import Composite, Scored


@dataclass(frozen=True)
class Sampling:
    """How completions are drawn."""

    temperature: float
    """0 = greedy."""
    top_p: float
    top_k: int
    """0 = off."""
    min_p: float | None
    repetition_penalty: float
    max_completion_length: int
    """Tokens."""
    seed: int


def sampling_of(recipe: Recipe, *, temperature: float | None = None, seed_offset: int = 0) -> Sampling:
    """The run's own sampling settings; `temperature` and the seed may differ for probes and evaluation."""
    grpo = recipe.grpo
    return Sampling(
        temperature=grpo.temperature if temperature is None else temperature,
        top_p=grpo.top_p,
        top_k=grpo.top_k,
        min_p=grpo.min_p,
        repetition_penalty=grpo.repetition_penalty,
        max_completion_length=grpo.max_completion_length,
        seed=grpo.seed + seed_offset,
    )


@dataclass(frozen=True)
class Completion:
    text: str
    """Without the prompt and without special tokens."""
    num_tokens: int
    """Sampled tokens, the end token included."""
    truncated: bool
    """The token limit was reached before an end token."""


Progress = Callable[[int, int], None]
"""(done, of)"""


@dataclass(frozen=True)
class StepSamples:
    """What one optimizer step was trained on."""

    step: int
    prompts: Sequence[Prompt]
    completions: Sequence[str]
    scored: Sequence[Scored]


@dataclass(frozen=True)
class Command:
    """What a viewer or the guard asks at a step boundary."""

    stop: bool = False
    checkpoint: bool = False
    shed: bool = False
    """Memory is short: empty caches and use less a step from here on, without changing what is learned."""
    reason: str | None = None


class TrainHooks(Protocol):
    """What the worker hears while an engine trains. Every call is at a step boundary but `on_samples`."""

    def on_metrics(self, step: int, metrics: Mapping[str, Any]) -> None: ...

    def on_samples(self, samples: StepSamples) -> None: ...

    def on_checkpoint(self, path: Path, step: int) -> None: ...

    def on_shed(self, changes: Sequence[str]) -> None: ...

    def poll(self, step: int) -> Command: ...


@dataclass(frozen=True)
class TrainJob:
    examples: Sequence[Example]
    composite: Composite
    checkpoints: Path
    """Folder for checkpoint-N folders."""
    resume_from: Path | None
    hooks: TrainHooks
    note: Callable[[str, Mapping[str, Any]], None] = lambda event, fields: None
    """Hears what is worth a line in the run's log: (event, fields)."""


@dataclass(frozen=True)
class TrainResult:
    step: int
    """Last optimizer step done."""
    stopped: bool
    """Ended by a command before max_steps."""
    train_seconds: float


@dataclass(frozen=True)
class Difference:
    """A setting whose effective value is not the one that was asked for."""

    key: str
    asked: Any
    effective: Any
    reason: str | None
    """Why it is known to differ here; None stops the run."""

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "asked": self.asked, "effective": self.effective, "reason": self.reason}


@dataclass(frozen=True)
class Effective:
    """What was really built, read back from the libraries' objects."""

    values: Mapping[str, Any]
    differences: tuple[Difference, ...]
    versions: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "values": dict(self.values),
            "differences": [difference.to_json() for difference in self.differences],
            "versions": dict(self.versions),
        }


class Engine(Protocol):
    """load -> generate* -> train -> generate* -> save. One model, one process."""

    def load(self) -> None:
        """Load model and tokenizer. Raises ConfigError (no such model), MissingPackage, Refused (VLM)."""

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt as the model will see it, chat template included."""

    def decode(self, tokens: Sequence[int]) -> str: ...

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, progress: Progress | None = None
    ) -> list[Completion]:
        """One completion a prompt, in order. The same prompts, weights and seed give the same completions."""

    def train(self, job: TrainJob, announce: Callable[[Effective], None]) -> TrainResult:
        """GRPO. `announce` gets the read-back before the first step; an unexplained difference raises TrainingFailed."""

    def save(self, path: Path) -> None:
        """The trained weights and the tokenizer: full weights, or the adapter."""
