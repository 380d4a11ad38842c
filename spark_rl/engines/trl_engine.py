"""What the unsloth and the plain engine share: TRL's GRPOTrainer around a loaded model, sampling, read-back, saving.

A subclass loads the model; everything else is stock TRL and Transformers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from spark_rl.checkpoints import COMPLETE_MARK
from spark_rl.dataset import Prompt
from spark_rl.engines.base import (
    Command,
    Completion,
    Difference,
    Effective,
    Progress,
    Sampling,
    StepSamples,
    TrainJob,
    TrainResult,
)
from spark_rl.engines.canary_hooks import WeightCanary
from spark_rl.engines.cpu_vllm import read_live_weights
from spark_rl.engines.grpo_config import Place, differences, grpo_config_values, plain, split_unknown
from spark_rl.engines.movement_watch import MovementWatch
from spark_rl.engines.read_back import optimizer_state, parking, read_back, state_differences
from spark_rl.engines.rollout_clock import RolloutClock
from spark_rl.engines.shed import shed_memory
from spark_rl.errors import ConfigError, TrainingFailed
from spark_rl.models import WITHOUT_A_HUB
from spark_rl.recipe import Recipe
from spark_rl.rewards.base import completion_text, raise_on_bugs
from spark_rl.rollout.plan import Plan
from spark_rl.units import GIB

TOKENS_PER_GENERATION_BATCH = 64 * 1024
"""Prompt + completion tokens sampled at once outside training: bounds the KV cache of probes and evaluation."""

TORCH_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def loaded_dtype(recipe: Recipe) -> str:
    """fp32 where full fine-tuning keeps fp32 master weights: they are the weights, and autocast computes in bf16."""
    full = recipe.tuning.method == "full" and recipe.tuning.master_weights == "fp32"
    return "float32" if full else recipe.model.dtype


class TrlEngine:
    """Base of the engines that train with TRL. Subclasses set `name` and implement `_load`."""

    name: str

    def __init__(self, recipe: Recipe, plan: Plan, chat_template_kwargs: Mapping[str, Any] | None = None) -> None:
        self.recipe, self.plan = recipe, plan
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
        self.place = Place(engine=self.name, has_cuda=torch.cuda.is_available())
        self.model: Any = None
        self.tokenizer: Any = None

    def load(self) -> None:
        torch.manual_seed(self.recipe.grpo.seed)
        cap = self.recipe.memory.memory_cap_gib
        if cap and self.place.has_cuda:
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, cap * GIB / total))
        self.model, self.tokenizer = self._load()
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token

    def _load(self) -> tuple[Any, Any]:
        raise NotImplementedError

    def _peft_config(self) -> Any:
        """The adapter for TRL to add, or None when there is none or `_load` has added it."""
        return None

    @contextlib.contextmanager
    def _inference(self) -> Iterator[None]:
        """The model in inference mode, and back as it was."""
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            self.model.train(was_training)

    def encode(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return list(self.tokenizer(prompt)["input_ids"])
        prefilled = prompt[-1]["role"] == "assistant"
        ids = self.tokenizer.apply_chat_template(
            prompt,
            add_generation_prompt=not prefilled,
            continue_final_message=prefilled,
            tokenize=True,
            return_dict=True,
            **self.chat_template_kwargs,
        )["input_ids"]
        return list(ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, progress: Progress | None = None
    ) -> list[Completion]:
        encoded = [self.encode(prompt) for prompt in prompts]
        # Longest first: like lengths share a batch, and a memory problem shows at once. The order is restored below.
        order = sorted(range(len(encoded)), key=lambda index: -len(encoded[index]))
        completions: dict[int, Completion] = {}
        torch.manual_seed(sampling.seed)
        start = 0
        while start < len(order):
            width = len(encoded[order[start]]) + sampling.max_completion_length
            batch = order[start : start + max(1, TOKENS_PER_GENERATION_BATCH // width)]
            for index, completion in zip(batch, self._generate([encoded[i] for i in batch], sampling), strict=True):
                completions[index] = completion
            start += len(batch)
            if progress:
                progress(len(completions), len(order))
        return [completions[index] for index in range(len(prompts))]

    def _generate(self, encoded: Sequence[list[int]], sampling: Sampling) -> list[Completion]:
        width = max(len(ids) for ids in encoded)
        pad, device = self.tokenizer.pad_token_id, self.model.device
        input_ids = torch.tensor([[pad] * (width - len(ids)) + ids for ids in encoded], device=device)
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in encoded], device=device)
        ends = self._end_tokens()
        greedy = sampling.temperature == 0
        choice = (
            {"do_sample": False}
            if greedy
            else {
                "do_sample": True,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "min_p": sampling.min_p,
            }
        )
        with self._inference():
            output = self.model.generate(
                input_ids=input_ids,
                attention_mask=mask,
                max_new_tokens=sampling.max_completion_length,
                repetition_penalty=sampling.repetition_penalty,
                eos_token_id=sorted(ends),
                pad_token_id=pad,
                **choice,
            )
        return [self._completion(ids, ends) for ids in output[:, width:].tolist()]

    def _completion(self, ids: list[int], ends: set[int]) -> Completion:
        stop = next((index for index, token in enumerate(ids) if token in ends), None)
        kept = ids if stop is None else ids[: stop + 1]
        return Completion(self.decode(kept), len(kept), truncated=stop is None)

    def _end_tokens(self) -> set[int]:
        configured = getattr(self.model.generation_config, "eos_token_id", None)
        ends = set(configured) if isinstance(configured, list) else {configured}
        return {token for token in (*ends, self.tokenizer.eos_token_id) if token is not None}

    def train(self, job: TrainJob, announce: Callable[[Effective], None]) -> TrainResult:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        recipe = self.recipe
        asked = grpo_config_values(
            recipe, job.checkpoints, job.composite.weights, self.chat_template_kwargs, self.place
        )
        known, lost = split_unknown(asked, {field.name for field in dataclasses.fields(GRPOConfig)})
        config = GRPOConfig(**known)
        recorder = RewardRecorder(job)
        callback = HookCallback(job)
        movement = MovementWatch(recipe, lambda report: job.note("weights_moved", {"message": report.words()}))
        with added_llm_arguments(self.plan, on_cpu=not self.place.has_cuda):
            trainer = GRPOTrainer(
                model=self.model,
                reward_funcs=recorder.functions(),
                args=config,
                # Rewards find their columns by row_index: rows may hold values that a table of columns cannot.
                train_dataset=Dataset.from_list(
                    [{"prompt": example.prompt, "row_index": index} for index, example in enumerate(job.examples)]
                ),
                processing_class=self.tokenizer,
                callbacks=[callback, movement],
                peft_config=self._peft_config(),
            )
        callback.trainer, callback.rollouts = trainer, RolloutClock(trainer)
        from transformers.trainer_callback import PrinterCallback

        trainer.remove_callback(PrinterCallback)
        canary: WeightCanary | None = None
        if self.plan.route.name in ("shared", "colocate", "server"):
            canary = WeightCanary(trainer, recipe, lambda row: job.note("canary_compared", row), self.encode)
            canary.attach()
            recorder.on_prompts = canary.on_prompts
        settings = [*lost, *differences(known, trainer.args, self.place)]

        def read() -> Effective:
            values, found = read_back(trainer, recipe, self.plan, self.place)
            fields = {key: plain(getattr(trainer.args, key)) for key in known}
            plan = {"plan": self.plan.to_json()}
            return Effective({**fields, **values, **plan}, (*settings, *found), installed_versions())

        def before_first_step() -> None:
            effective = read()
            announce(effective)
            stop_on_unexplained(effective.differences)

        def after_first_step() -> None:
            effective, state = read(), optimizer_state(trainer)
            found = (*effective.differences, *state_differences(state["optimizer_state_bytes"], recipe, self.place))
            announce(Effective({**effective.values, **state}, found, effective.versions))
            stop_on_unexplained(found)

        def after_second_rollout() -> None:
            effective, state = read(), optimizer_state(trainer)
            parked, found = parking(trainer, recipe, self.place)
            announce(
                Effective({**effective.values, **state, **parked}, (*effective.differences, *found), effective.versions)
            )
            stop_on_unexplained(found)

        callback.before_first_step, callback.after_first_step = before_first_step, after_first_step
        callback.after_second_rollout = after_second_rollout
        started = time.monotonic()
        try:
            trainer.train(resume_from_checkpoint=str(job.resume_from) if job.resume_from else None)
        finally:
            if canary is not None:
                canary.detach()
        self.model = trainer.accelerator.unwrap_model(trainer.model)
        return TrainResult(trainer.state.global_step, callback.stopped, time.monotonic() - started)

    def save(self, path: Path) -> None:
        model = self.model
        if hasattr(model, "peft_config"):
            model.save_pretrained(path, selected_adapters=["default"], safe_serialization=True)
        else:
            model.save_pretrained(path, safe_serialization=True)
        self.tokenizer.save_pretrained(path)


class RewardRecorder:
    """TRL's reward functions, one per part, over one scoring of each batch; every batch is handed to `on_samples`."""

    def __init__(self, job: TrainJob) -> None:
        self._job = job
        self._columns: dict[str, list[float | None]] = {}
        self.on_prompts: Callable[[Sequence[Any]], None] = lambda prompts: None

    def functions(self) -> list[Callable[..., list[float | None]]]:
        return [self._function(index, part.name) for index, (part, _) in enumerate(self._job.composite.parts)]

    def _function(self, index: int, name: str) -> Callable[..., list[float | None]]:
        def function(
            prompts: Any, completions: Any, completion_ids: Any, row_index: Any, trainer_state: Any, **_: Any
        ) -> list[float | None]:
            if index == 0:  # TRL calls the parts in order, on the same batch
                self._score(prompts, completions, completion_ids, row_index, trainer_state.global_step + 1)
            return self._columns[name]

        function.__name__ = name  # TRL's metric name
        return function

    def _score(self, prompts: Any, completions: Any, completion_ids: Any, row_index: Sequence[int], step: int) -> None:
        rows = [
            {**self._job.examples[index].row, "prompt": prompt, "completion_ids": ids}
            for index, prompt, ids in zip(row_index, prompts, completion_ids, strict=True)
        ]
        texts = [completion_text(completion) for completion in completions]
        scored = self._job.composite.score(texts, rows)
        self._job.hooks.on_samples(StepSamples(step, list(prompts), texts, scored))
        self._columns = {}
        for part, _ in self._job.composite.parts:
            verdicts = [one.parts[part.name] for one in scored]
            raise_on_bugs(part.name, verdicts)
            self._columns[part.name] = [verdict.value for verdict in verdicts]


class HookCallback(TrainerCallback):  # type: ignore[misc]
    """Carries TRL's metrics and step boundaries to the worker's hooks, and the worker's commands back."""

    def __init__(self, job: TrainJob) -> None:
        self._job = job
        self.stopped = False
        self.trainer: Any = None
        self.rollouts: RolloutClock | None = None
        self.before_first_step: Callable[[], None] = lambda: None
        self.after_first_step: Callable[[], None] = lambda: None
        self.after_second_rollout: Callable[[], None] | None = None
        self._num_steps = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.before_first_step()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if not logs or "train_runtime" in logs:
            return
        rollouts = {} if self.rollouts is None else self.rollouts.take()
        self._job.hooks.on_metrics(state.global_step, {**logs, **rollouts})
        for key in ("loss", "grad_norm"):
            value = logs.get(key)
            if isinstance(value, float) and value != value:
                raise TrainingFailed(
                    f"{key} is NaN at step {state.global_step}: the weights are spoilt from here on",
                    "resume from the last checkpoint with a lower learning rate; look at the rewards of this step",
                )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        self._num_steps += 1
        if self._num_steps == 1:
            self.after_first_step()
        if self.after_second_rollout and self.rollouts and self.rollouts.num_rollouts >= 2:
            self.after_second_rollout()
            self.after_second_rollout = None
        command = self._agreed(self._job.hooks.poll(state.global_step))
        if command.shed and self.trainer is not None:
            self._job.hooks.on_shed(shed_memory(self.trainer))
        if command.checkpoint or command.stop:
            control.should_save = True
        if command.stop and state.global_step < args.max_steps:
            control.should_training_stop = True
            self.stopped = True
        return control

    def _agreed(self, command: Command) -> Command:
        """The first process's command, in every process: they must stop and save at the same step."""
        if self.trainer is None or self.trainer.accelerator.num_processes == 1:
            return command
        from accelerate.utils import broadcast_object_list

        agreed: list[Command] = broadcast_object_list([command])
        return agreed[0]

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        (path / COMPLETE_MARK).touch()
        self._job.hooks.on_checkpoint(path, state.global_step)


@contextlib.contextmanager
def added_llm_arguments(plan: Plan, on_cpu: bool) -> Iterator[None]:
    """While TRL builds its colocated engine: the arguments that GRPOConfig has no field for, under vLLM's own names."""
    if plan.route.name != "colocate":
        yield
        return
    from trl.generation import vllm_generation

    if on_cpu:
        read_live_weights()
    build = vllm_generation.LLM
    vllm_generation.LLM = lambda **arguments: build(**{**arguments, **plan.llm_arguments})
    try:
        yield
    finally:
        vllm_generation.LLM = build


def stop_on_unexplained(found: Sequence[Difference]) -> None:
    """TrainingFailed naming every setting that a library replaced without a reason we know."""
    unexplained = [one for one in found if one.reason is None]
    if unexplained:
        raise TrainingFailed(
            "\n".join(f"{one.key}: asked {one.asked!r}, the library set {one.effective!r}" for one in unexplained),
            "the recipe cannot be carried out as written: change these values, or report the replacement",
        )


def installed_versions() -> dict[str, str]:
    names = (
        "torch",
        "transformers",
        "trl",
        "peft",
        "accelerate",
        "datasets",
        "unsloth",
        "unsloth_zoo",
        "vllm",
        "bitsandbytes",
    )
    versions = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def hub_error(model_id: str, error: Exception) -> ConfigError:
    """One sentence for every way a hub model may fail to load."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ConfigError(
        f"model {model_id!r} cannot be loaded: {first}",
        WITHOUT_A_HUB,
    )
