"""One job of an engine test, in a process of its own: load, evaluate, train, evaluate; figures as JSON."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_rl.checkpoints import latest_checkpoint
from spark_rl.dataset import Example, load_examples
from spark_rl.engines import build_engine
from spark_rl.engines.base import Command, StepSamples, TrainJob, sampling_of
from spark_rl.recipe import resolve
from spark_rl.rewards.base import Reward, RewardPart, Verdict
from spark_rl.rewards.composite import Composite
from spark_rl.task import load_task


class Hooks:
    def __init__(self, stop_at: int | None) -> None:
        self.stop_at, self.metrics, self.num_samples = stop_at, [], 0

    def on_metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.metrics.append({"step": step, "reward": metrics.get("reward"), "kl": metrics.get("kl")})
        self.metrics[-1]["logp_difference"] = metrics.get("sampling/sampling_logp_difference/mean")

    def on_samples(self, samples: StepSamples) -> None:
        self.num_samples += len(samples.completions)

    def on_checkpoint(self, path: Path, step: int) -> None:
        pass

    def on_shed(self, changes) -> None:
        pass

    def poll(self, step: int) -> Command:
        return Command(stop=step == self.stop_at)


class Constant(Reward):
    kind = "constant"

    def judge(self, completion: str, row: Mapping[str, Any]) -> Verdict:
        return Verdict(1.0, "always")


def shuffled(examples: list[Example]) -> list[Example]:
    """Every prompt with another prompt's answer."""
    answers = [example.row["answer"] for example in examples]
    random.Random(0).shuffle(answers)
    return [
        replace(example, row={**example.row, "answer": answer})
        for example, answer in zip(examples, answers, strict=True)
    ]


def main(job: Mapping[str, Any]) -> None:
    task = load_task("sort-digits")
    recipe = resolve("cpu-tiny", task.overrides, job["sets"])
    examples = load_examples(task)
    train = list(examples.train)
    truth = Composite(task.build_rewards())
    composite = truth
    if job.get("control") == "constant":
        composite = Composite([(RewardPart("constant", "constant"), Constant())])
    if job.get("control") == "shuffled":
        train = shuffled(train)
        composite = Composite([pair for pair in task.build_rewards() if pair[0].means == "correct"])
    engine = build_engine(recipe, {})
    engine.load()
    heldout = examples.heldout[: job.get("num_heldout", 200)]
    prompts = [example.prompt for example in heldout]

    def evaluate() -> dict[str, Any]:
        completions = engine.generate(prompts, sampling_of(recipe, seed_offset=1_000_000))
        scored = truth.score([one.text for one in completions], [{**e.row, "prompt": e.prompt} for e in heldout])
        return {
            "correct": [one.correct is True for one in scored],
            "formatted": [one.parts["format"].value == 1.0 for one in scored],
            "texts": [one.text for one in completions],
        }

    def weights() -> dict[str, Any]:
        return {name: p.detach().clone() for name, p in engine.model.named_parameters() if p.requires_grad}

    before, old = evaluate(), weights()
    again = engine.generate(prompts[:8], sampling_of(recipe, seed_offset=7))
    repeat = engine.generate(prompts[:8], sampling_of(recipe, seed_offset=7))
    checkpoints = Path(job["folder"]) / "checkpoints"
    hooks = Hooks(job.get("stop_at"))
    effective = []
    resume = latest_checkpoint(checkpoints) if job.get("resume") else None
    notes: list[dict[str, Any]] = []

    def note(event: str, fields: Mapping[str, Any]) -> None:
        notes.append({"event": event, **fields})

    result = engine.train(TrainJob(train, composite, checkpoints, resume, hooks, note), effective.append)
    after, new = evaluate(), {name.removeprefix("module."): p for name, p in engine.model.named_parameters()}
    changed = [(old[name] != new[name]).float().mean().item() for name in old if name in new]
    engine.save(Path(job["folder"]) / "model")
    Path(job["result"]).write_text(
        json.dumps(
            {
                "before": before,
                "after": after,
                "changed": changed,
                "reproducible": [one.text for one in again] == [one.text for one in repeat],
                "metrics": hooks.metrics,
                "num_samples": hooks.num_samples,
                "step": result.step,
                "stopped": result.stopped,
                "effective": effective[-1].to_json(),
                "notes": notes,
            }
        )
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
