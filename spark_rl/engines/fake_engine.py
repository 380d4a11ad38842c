"""A scripted engine for tests of everything around an engine: no model, no torch, and no claim about training.

It knows one task, sorting digits, and answers rightly with a chance that grows with the steps it has "trained".
SPARK_RL_FAKE_LEAK_MIB makes it really allocate (and touch) that much at every step ("300,2": 300 at the first, then 2),
for tests of the guard; with SPARK_RL_FAKE_SHEDS=1 it gives it all back when asked to shed.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_rl.checkpoints import COMPLETE_MARK
from spark_rl.dataset import Prompt
from spark_rl.engines.base import Completion, Effective, Progress, Sampling, StepSamples, TrainJob, TrainResult
from spark_rl.recipe import Recipe
from spark_rl.rewards.base import raise_on_bugs
from spark_rl.units import MIB


class FakeEngine:
    def __init__(self, recipe: Recipe, chat_template_kwargs: Mapping[str, Any]) -> None:
        self.recipe = recipe
        self.step = 0
        self.seconds_per_step = 0.02
        """Long enough for a test to act in the middle of a run."""
        self.leak_bytes = [int(float(word) * MIB) for word in os.environ.get("SPARK_RL_FAKE_LEAK_MIB", "0").split(",")]
        self.leaked: list[bytearray] = []

    def load(self) -> None:
        self.step = 0

    def encode(self, prompt: Prompt) -> list[int]:
        return [ord(letter) for letter in str(prompt)]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(token) for token in tokens)

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, progress: Progress | None = None
    ) -> list[Completion]:
        chooser = random.Random(f"{sampling.seed}:{self.step}")
        texts = [self._answer(prompt, chooser) for prompt in prompts]
        if progress:
            progress(len(texts), len(texts))
        return [Completion(text, len(text), truncated=False) for text in texts]

    def _answer(self, prompt: Prompt, chooser: random.Random) -> str:
        digits = "".join(sorted(re.sub(r"\D", "", str(prompt))))
        chance = 0.4 + 0.5 * self.step / self.recipe.grpo.max_steps
        return f"[{digits}]" if chooser.random() < chance else chooser.choice((f"[{digits[::-1]}]", digits))

    def train(self, job: TrainJob, announce: Callable[[Effective], None]) -> TrainResult:
        announce(Effective({"trainer_class": "fake"}, (), {}))
        if job.resume_from:
            self.step = int(json.loads((job.resume_from / "state.json").read_text())["step"])
        started = time.monotonic()
        grpo = self.recipe.grpo
        while self.step < grpo.max_steps:
            self._one_step(job)
            command = job.hooks.poll(self.step)
            if command.shed and os.environ.get("SPARK_RL_FAKE_SHEDS"):
                self.leaked.clear()
                self.leak_bytes = [0]
                job.hooks.on_shed(["gave back what was leaked"])
            if self.step % grpo.save_steps == 0 or command.checkpoint or command.stop or self.step == grpo.max_steps:
                self._checkpoint(job)
            if command.stop and self.step < grpo.max_steps:
                return TrainResult(self.step, True, time.monotonic() - started)
        return TrainResult(self.step, False, time.monotonic() - started)

    def _one_step(self, job: TrainJob) -> None:
        time.sleep(self.seconds_per_step)
        leak = self.leak_bytes.pop(0) if len(self.leak_bytes) > 1 else self.leak_bytes[0]
        if leak:
            self.leaked.append(bytearray(b"x") * leak)
        count = self.recipe.generation_batch_size
        chooser = random.Random(self.step)
        examples = [chooser.choice(job.examples) for _ in range(count)]
        texts = [self._answer(example.prompt, chooser) for example in examples]
        scored = job.composite.score(texts, [{**e.row, "prompt": e.prompt} for e in examples])
        self.step += 1
        job.hooks.on_samples(StepSamples(self.step, [e.prompt for e in examples], texts, scored))
        for part, _ in job.composite.parts:
            raise_on_bugs(part.name, [one.parts[part.name] for one in scored])
        totals = [one.total for one in scored if one.total is not None]
        mean = sum(totals) / len(totals) if totals else None
        job.hooks.on_metrics(self.step, {"reward": mean, "loss": 0.0, "kl": 0.0, "step_time": self.seconds_per_step})

    def _checkpoint(self, job: TrainJob) -> None:
        path = job.checkpoints / f"checkpoint-{self.step}"
        path.mkdir(parents=True, exist_ok=True)
        (path / "state.json").write_text(json.dumps({"step": self.step}))
        (path / COMPLETE_MARK).touch()
        job.hooks.on_checkpoint(path, self.step)

    def save(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        (path / "fake.json").write_text(json.dumps({"step": self.step}))
