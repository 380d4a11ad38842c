"""The canary at work: listens to TRL's weight syncs and generations, compares, and ends the run when they do not agree.

Comparisons and names of faults are in `rollout.canary`; how to read both sides is in `engine_view`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spark_rl.engines import engine_view as view
from spark_rl.errors import TrainingFailed
from spark_rl.recipe import Recipe
from spark_rl.rollout.canary import Diagnosis, Logprobs, Sums, Sync, judge_logprobs, judge_prompts, judge_sync

FIRST_CHECKS = 2
"""Comparisons of log-probabilities that always take place: before the first update, and right after it."""

Report = Callable[[dict[str, Any]], None]


class WeightCanary:
    """Attach once to a built trainer that samples with vLLM; `report` gets one row a comparison."""

    def __init__(
        self,
        trainer: Any,
        recipe: Recipe,
        report: Report,
        encode: Callable[[Any], list[int]] | None = None,
    ) -> None:
        self._trainer, self._recipe, self._report, self._encode = trainer, recipe, report, encode
        self._generation = trainer.vllm_generation
        self._engine: Any = view.engine_model(trainer)
        self._pushed: dict[str, Sums] | None = None
        self._held_before: dict[str, Sums] | None = None
        self._num_syncs = self._num_checks = 0
        self._noise: float | None = None
        self._fixed: tuple[list[view.TokenIds], list[view.TokenIds]] | None = None
        self._fixed_before: list[float] = []
        self._given: list[view.TokenIds] = []
        self._dtype = self._coarser_dtype()
        self.shares_weights = bool(getattr(getattr(self._generation, "llm", None), "shared_weights", False))

    def attach(self) -> None:
        """Wrap the three calls, on these instances alone."""
        generation = self._generation
        self._sync, self._generate = generation.sync_weights, generation.generate
        generation.sync_weights, generation.generate = self._on_sync, self._on_generate
        if self._can_read_weights():
            self._load = self._engine.load_weights
            self._engine.load_weights = self._on_load

    def detach(self) -> None:
        """Give the library its own functions back."""
        self._generation.sync_weights, self._generation.generate = self._sync, self._generate
        if self._can_read_weights():
            self._engine.load_weights = self._load

    def _can_read_weights(self) -> bool:
        return self._engine is not None and not self.shares_weights and self._trainer.accelerator.num_processes == 1

    def _coarser_dtype(self) -> str:
        found = {str(parameter.dtype).removeprefix("torch.") for parameter in self._trainer.model.parameters()}
        if self._engine is not None:
            found |= {str(parameter.dtype).removeprefix("torch.") for parameter in self._engine.parameters()}
        if self._trainer.args.bf16:
            found.add("bfloat16")
        return next((name for name in ("bfloat16", "float16") if name in found), "float32")

    # checksums

    def _on_load(self, weights: Any) -> Any:
        """Note what is pushed, in the engine's dtype, and push it."""
        held = {name: parameter.dtype for name, parameter in self._engine.named_parameters()}
        fused = view.fused_names(self._engine)
        passed = []

        def listen() -> Any:
            for name, tensor in weights:
                passed.append((view.engine_name(name, fused), tensor))
                yield name, tensor

        result = self._load(listen())
        if self._pushed is not None:
            found = view.checksums((name, tensor.to(held.get(name, tensor.dtype))) for name, tensor in passed)
            for name, sums in found.items():
                self._pushed[name] = self._pushed.get(name, Sums(0.0, 0.0)) + sums
        return result

    def _on_sync(self) -> None:
        if not self._can_read_weights():
            self._sync()
            self._num_syncs += 1
            return
        fused = view.fused_names(self._engine)
        dtypes = {name: parameter.dtype for name, parameter in self._engine.named_parameters()}
        expected: dict[str, Sums] = {}
        bare: dict[str, Sums] = {}
        for name, plain, merged in view.trainer_tensors(self._trainer.accelerator.unwrap_model(self._trainer.model)):
            known = view.engine_name(name, fused)
            dtype = dtypes.get(known, plain.dtype)
            (sums,) = view.checksums([(known, merged.to(dtype))]).values()
            expected[known] = expected.get(known, Sums(0.0, 0.0)) + sums
            if merged is not plain:
                (sums,) = view.checksums([(known, plain.to(dtype))]).values()
            bare[known] = bare.get(known, Sums(0.0, 0.0)) + sums
        self._pushed = {}
        self._sync()
        pushed, self._pushed = self._pushed, None
        held = view.checksums((name, parameter.data) for name, parameter in self._engine.named_parameters())
        self._num_syncs += 1
        has_adapter = hasattr(self._trainer.accelerator.unwrap_model(self._trainer.model), "peft_config")
        sync = Sync(
            expected=expected,
            pushed=pushed or None,
            held=held,
            base=bare if has_adapter else None,
            before=self._held_before,
            vocabulary=view.vocabulary(self._trainer.accelerator.unwrap_model(self._trainer.model), self._engine),
        )
        self._held_before = held
        self._stop_on(judge_sync(sync), "weights")

    # log-probabilities

    def _is_due(self) -> bool:
        return (
            self._num_checks < FIRST_CHECKS or self._trainer.state.global_step % self._recipe.canary.logprob_every == 0
        )

    def _on_generate(self, prompts: Any, images: Any, num_generations: int, profiler: Any = None) -> Any:
        self._given = prompts
        due = self._is_due() and self._generation.mode == "colocate"
        followed = self._compare_fixed() if due and self._fixed else {}
        result = self._generate(prompts, images, num_generations, profiler)
        if self._is_due():
            self._compare_sampled(prompts, result, followed)
            self._num_checks += 1
        return result

    def on_prompts(self, prompts: Sequence[Any]) -> None:
        """The prompts of the batch just sampled, as the data has them: their ids must be those that were handed over."""
        if self._encode is None or len(prompts) != len(self._given) or self._num_checks > FIRST_CHECKS:
            return
        expected = [self._encode(prompt) for prompt in prompts]
        self._stop_on(judge_prompts(expected, self._given, self._given), "prompts")

    def _compare_fixed(self) -> dict[str, float | None]:
        """How far engine and trainer have moved on tokens chosen at the first comparison."""
        assert self._fixed is not None
        if self.shares_weights:
            return {}
        llm = self._generation.llm
        if self._generation.enable_sleep_mode:
            if self._generation._llm_weights_sleeping:
                self._generation.sync_weights()
            llm.wake_up(tags=["kv_cache"])
        engine = _flat(view.engine_logprobs(llm, *self._fixed))
        now = _flat(view.trainer_logprobs(self._trainer, *self._fixed, temperature=1.0))
        moved = [new - old for new, old in zip(now, self._fixed_before, strict=True)]
        weight = sum(step * step for step in moved)
        followed = (
            sum((seen - old) * step for seen, old, step in zip(engine, self._fixed_before, moved, strict=True)) / weight
            if weight
            else None
        )
        self._fixed_before = now
        return {
            "followed": followed,
            "progress": sum(map(abs, moved)) / len(moved),
            "fixed_difference": sum(abs(a - b) for a, b in zip(engine, now, strict=True)) / len(now),
        }

    def _compare_sampled(self, prompts: Any, result: Any, followed: dict[str, float | None]) -> None:
        prompt_ids, completion_ids, logprobs, _ = result
        if self._generation.mode == "colocate":
            self._stop_on(judge_prompts(prompts, prompts, prompt_ids), "prompts")
        count = self._recipe.canary.logprob_sequences
        chosen = [index for index, ids in enumerate(completion_ids) if len(ids)][:count]
        if not chosen or logprobs is None:
            return
        asked = [list(prompts[index]) if index < len(prompts) else list(prompt_ids[index]) for index in chosen]
        answers = [list(completion_ids[index]) for index in chosen]
        sampler = [float(step[0]) for index in chosen for step in logprobs[index]]
        trainer = _flat(view.trainer_logprobs(self._trainer, asked, answers, self._recipe.grpo.temperature))
        signed = [left - right for left, right in zip(sampler, trainer, strict=True)]
        now = Logprobs(
            mean_difference=sum(map(abs, signed)) / len(signed),
            mean_signed=sum(signed) / len(signed),
            num_tokens=len(signed),
            dtype=self._dtype,
            **followed,
        )
        self._report(
            {
                "step": self._trainer.state.global_step,
                "mean_difference": now.mean_difference,
                "num_tokens": now.num_tokens,
                "followed": now.followed,
                "progress": now.progress,
            }
        )
        self._stop_on(judge_logprobs(now, self._noise), "log-probabilities")
        if self._noise is None:
            self._noise = now.mean_difference
        if self._fixed is None:
            self._fixed = (asked, answers)
            self._fixed_before = _flat(view.trainer_logprobs(self._trainer, asked, answers, temperature=1.0))

    def _stop_on(self, told: Diagnosis | None, what: str) -> None:
        if told is None:
            return
        step = self._trainer.state.global_step + 1
        self._report({"step": step, "fault": told.name, "what": what})
        raise TrainingFailed(
            f"canary, step {step}: {told.name}: {told.words}. The engine does not sample with the trainer's weights",
            told.hint,
        )


def _flat(rows: Sequence[Sequence[float]]) -> list[float]:
    return [value for row in rows for value in row]
