"""One GRPO step on recorded completions, in as many processes as this was launched with; rank 0 writes loss and gradients.

`accelerate launch --num_processes N drive_two_processes.py OUT METHOD`. The global batch is the same for every N.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from spark_rl.engines.grpo_config import Place, grpo_config_values, split_unknown
from spark_rl.engines.plain_engine import PlainEngine
from spark_rl.host import machine_class
from spark_rl.recipe import resolve
from spark_rl.rollout.plan import plan_rollout
from spark_rl.task import load_task

GLOBAL_BATCH = 16
LORA = ["tuning.method=lora", "lora.r=8", "lora.lora_alpha=8"]


def recorded(prompt: str, copy: int) -> str:
    """The completion of the copy-th repetition of a prompt: right, cut off, or wrong, always the same."""
    digits = sorted(prompt.strip("sort =^"))
    chooser = random.Random(f"{prompt}:{copy}")
    chooser.shuffle(digits) if copy % 2 else None
    return "[" + "".join(digits)[: chooser.randint(2, 5)] + ("]" if copy % 3 else "")


class Gradients(TrainerCallback):
    def __init__(self) -> None:
        self.found: dict[str, torch.Tensor] = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                self.found[name.removeprefix("module.")] = parameter.grad.detach().clone()


def main(out: Path, method: str, processes: int) -> None:
    task = load_task("sort-digits")
    sets = ["engine.name=plain", f"grpo.per_device_train_batch_size={GLOBAL_BATCH // processes}", "grpo.max_steps=1"]
    # Clipping would hide a factor between the two ways of averaging.
    recipe = resolve("cpu-tiny", task.overrides, [*sets, "grpo.max_grad_norm=1e9", *(LORA if method == "lora" else [])])
    engine = PlainEngine(recipe, plan_rollout(recipe, machine_class("cpu")))
    engine.load()
    if method == "lora":  # B starts at zero, and then A has no gradient
        torch.manual_seed(1)
    values = grpo_config_values(recipe, out.parent / "work", [1.0], {}, Place("plain", False))
    known, _ = split_unknown(values, set(GRPOConfig.__dataclass_fields__))
    gradients, tokenizer = Gradients(), engine.tokenizer
    prompts = [f"sort {number}=" for number in (50391, 71204, 96385, 20418)]

    def rollout(asked: list[str], trainer: Any) -> dict[str, Any]:
        seen: dict[str, int] = {}
        texts = []
        for prompt in asked:
            copy = seen.get(prompt, 0)
            seen[prompt] = copy + 1
            texts.append(recorded(prompt, copy))
        ids = [tokenizer(text)["input_ids"] + [tokenizer.eos_token_id] for text in texts]
        return {
            "prompt_ids": [tokenizer(prompt)["input_ids"] for prompt in asked],
            "completion_ids": ids,
            "logprobs": None,
        }

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [len(text) / 7 + text.count("]") for text in completions]

    trainer = GRPOTrainer(
        model=engine.model,
        reward_funcs=[reward],
        args=GRPOConfig(**known),
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        processing_class=tokenizer,
        callbacks=[gradients],
        peft_config=engine._peft_config(),
        rollout_func=rollout,
    )
    trainer.train()
    assert trainer.accelerator.num_processes == processes
    if trainer.accelerator.is_main_process:
        logged = next(row for row in trainer.state.log_history if "loss" in row)
        torch.save(
            {"loss": logged["loss"], "reward": logged["reward"], "backend": _backend(), "gradients": gradients.found},
            out,
        )


def _backend() -> str | None:
    return torch.distributed.get_backend() if torch.distributed.is_initialized() else None


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
