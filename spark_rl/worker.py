"""The heavy child of a run: loads the model once and carries out the stages it is given, in their order.

    probe    can the model succeed sometimes?
    inspect  completions for a person to read
    oracle   a demo task's oracle signs for them
    train    refuses without a sign-off; held-out evaluation, GRPO, evaluation again

Everything it learns goes to the run directory. It ends with one `worker_finished` event that says why.
Started by the supervisor: `python -m spark_rl.worker RUN --stages probe,inspect`.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from spark_rl import control, gate
from spark_rl.checkpoints import latest_checkpoint, remove_torn
from spark_rl.dataset import Example, Examples, apply_length_policy, load_examples, prompt_text
from spark_rl.engines import build_engine
from spark_rl.engines.base import Command, Completion, Difference, Effective, Engine, StepSamples, TrainJob, sampling_of
from spark_rl.errors import ConfigError, ExitCode, Refused, SparkError
from spark_rl.evaluate import compare
from spark_rl.gate.subject import Subject, read_recipe, read_task, subject_of
from spark_rl.probe import ProbeCounts, judge_probe
from spark_rl.recipe import Recipe
from spark_rl.rewards.base import raise_on_bugs
from spark_rl.rewards.composite import Composite, Scored
from spark_rl.rundir import JsonlWriter, RunDir, read_json, write_json, write_jsonl
from spark_rl.task import Task

STAGES = ("probe", "inspect", "oracle", "train")

HELDOUT_SEED_OFFSET = 1_000_000
PROBE_SEED_OFFSET = 2_000_000
INSPECT_SEED_OFFSET = 3_000_000
"""Sampling seeds of the parts of a run: fixed, and far from each other."""

LOW_TEMPERATURE_SAMPLES = 2
"""Completions a prompt at low temperature: there they hardly differ."""

PAUSE_POLL_SECONDS = 0.5


class EventLog:
    """worker.jsonl: phases, progress at most once a second, and whatever a person should hear."""

    def __init__(self, run: RunDir) -> None:
        self._writer = JsonlWriter(run.worker_events)
        self._phase = ""
        self._progressed_at = 0.0

    def write(self, event: str, **fields: Any) -> None:
        self._writer.append({"event": event, **fields})

    def phase(self, name: str) -> None:
        self._phase, self._progressed_at = name, time.monotonic()
        self.write("phase_started", phase=name)

    def progress(self, done: int, of: int) -> None:
        now = time.monotonic()
        if done == of or now - self._progressed_at >= 1.0:
            self._progressed_at = now
            self.write("phase_progressed", phase=self._phase, done=done, of=of)


class RunHooks:
    """What an engine reports while it trains, written to the run directory; and what it is asked to do."""

    def __init__(self, run: RunDir, log: EventLog, supervisor_pid: int, since: float) -> None:
        self._run, self._log, self._supervisor_pid = run, log, supervisor_pid
        self._metrics = JsonlWriter(run.metrics)
        self._since = since
        """UTC seconds of the worker's start: what was asked for while it loaded is still meant for it."""
        self._carried_out: dict[control.Asker, str] = {}
        self._held_by: set[control.Asker] = set()
        """Who asked for a pause; both must have let go before the next step."""
        self.stop_reason: str | None = None

    def on_metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        self._metrics.append({"step": step, **metrics})

    def on_samples(self, samples: StepSamples) -> None:
        rows = [
            {"step": samples.step, **sample_row(prompt_text(prompt), text, scored)}
            for prompt, text, scored in zip(samples.prompts, samples.completions, samples.scored, strict=True)
        ]
        write_jsonl(self._run.samples / f"{samples.step:06d}.jsonl", rows)

    def on_checkpoint(self, path: Path, step: int) -> None:
        self._log.write("checkpoint_saved", step=step, path=str(path.relative_to(self._run.path)))

    def on_shed(self, changes: Sequence[str]) -> None:
        self._log.write("memory_shed", message="; ".join(changes))

    def poll(self, step: int) -> Command:
        """What to do at this step boundary; returns only when nobody holds the run."""
        was_held = bool(self._held_by)
        while True:
            if os.getppid() != self._supervisor_pid:
                self.stop_reason = "the supervisor is gone"
                return Command(stop=True, checkpoint=True, reason=self.stop_reason)
            command = self._read_requests()
            if command.stop or command.checkpoint:
                return command
            if not self._held_by:
                if was_held:
                    self._log.write("resumed", step=step)
                return command
            if not was_held:
                self._log.write("paused", step=step, by=sorted(self._held_by))
                was_held = True
            time.sleep(PAUSE_POLL_SECONDS)

    def _read_requests(self) -> Command:
        checkpoint = shed = False
        for asker in get_args(control.Asker):
            asked = control.read_request(self._run, newer_than=self._since, asker=asker)
            if asked is None or asked.id == self._carried_out.get(asker):
                continue
            self._carried_out[asker] = asked.id
            if asked.request == "stop":
                self.stop_reason = "stop was asked for" if asker == "viewer" else "the guard asked for a stop"
                return Command(stop=True, checkpoint=True, reason=self.stop_reason)
            if asked.request == "pause":
                self._held_by.add(asker)
            else:
                self._held_by.discard(asker)
            checkpoint = checkpoint or asked.request in ("checkpoint", "shed")
            shed = shed or asked.request == "shed"
        return Command(checkpoint=checkpoint, shed=shed)


class Worker:
    """One pass over the stages, with one loaded model."""

    def __init__(self, run: RunDir, stages: Sequence[str], supervisor_pid: int) -> None:
        self.run, self.stages, self.supervisor_pid = run, stages, supervisor_pid
        self.started = time.time()
        self.log = EventLog(run)
        self.recipe: Recipe = read_recipe(run)
        self.task: Task = read_task(run)
        self.composite = Composite(self.task.build_rewards(), gate_on_format=self.task.scoring.gate_on_format)
        self.data: Examples = load_examples(self.task)
        self.examples = self.data
        every = (*self.data.train, *self.data.heldout)
        self.composite.check_rows([gate.scoring_row(one, num_tokens=0) for one in every])  # before minutes of loading
        self.training = False
        self.stopped = False
        self.told: list[Difference] = []

    def carry_out(self) -> None:
        """Load, then every stage. Raises SparkError; `self.training` tells whether training had begun."""
        if "train" in self.stages and "inspect" not in self.stages:
            self._require_signoff()  # before minutes of loading
        self.log.phase("load")
        engine = build_engine(self.recipe, template_arguments(self.task))
        engine.load()
        self.examples = apply_length_policy(
            self.data,
            self.recipe.prompt.max_prompt_length,
            self.recipe.prompt.overlong,
            engine.encode,
            engine.decode,
        )
        for note in self.examples.notes:
            self.log.write("data_noted", message=note)
        if "probe" in self.stages:
            self._probe(engine)
        if "inspect" in self.stages:
            self._inspect(engine)
        if "oracle" in self.stages:
            signed = gate.sign_with_oracle(self.run, self._subject())
            self.log.write("signed", reader=signed.reader)
        if "train" in self.stages:
            self._require_signoff()
            self._train(engine)

    def _subject(self) -> Subject:
        return subject_of(self.recipe, self.task, self.data)

    def _require_signoff(self) -> None:
        root = self.run.path.parent
        gate.adopt_signoff(self.run, gate.require_signoff(self.run, self._subject(), runs_root=root), root)

    def _score(self, examples: Sequence[Example], completions: Sequence[Completion]) -> list[Scored]:
        rows = [gate.scoring_row(one, made.num_tokens) for one, made in zip(examples, completions, strict=True)]
        scored = self.composite.score([completion.text for completion in completions], rows)
        for part, _ in self.composite.parts:
            raise_on_bugs(part.name, [one.parts[part.name] for one in scored])
        return scored

    def _probe(self, engine: Engine) -> None:
        self.log.phase("probe")
        settings, chooser = self.recipe.probe, random.Random(self.recipe.grpo.seed)
        train = self.examples.train
        chosen = chooser.sample(train, min(settings.num_prompts, len(train)))

        def sample(num_samples: int, temperature: float, seed_offset: int) -> ProbeCounts:
            repeated = [example for example in chosen for _ in range(num_samples)]
            sampling = sampling_of(self.recipe, temperature=temperature, seed_offset=seed_offset)
            completions = engine.generate([one.prompt for one in repeated], sampling, self.log.progress)
            scored = self._score(repeated, completions)
            groups = [scored[i : i + num_samples] for i in range(0, len(scored), num_samples)]
            return ProbeCounts(
                temperature,
                num_samples,
                successes=tuple(sum(one.correct is True for one in group) for group in groups),
                totals=tuple(tuple(one.total for one in group) for group in groups),
            )

        at_run = sample(settings.num_samples, self.recipe.grpo.temperature, PROBE_SEED_OFFSET)
        at_low = sample(LOW_TEMPERATURE_SAMPLES, settings.low_temperature, PROBE_SEED_OFFSET + 1)
        result = judge_probe(at_run, at_low, self.recipe.grpo.num_generations)
        write_json(self.run.probe, result.to_json())
        self.log.write("probe_judged", verdict=result.verdict, message=result.words)
        if not result.allows_training:
            raise Refused(result.words, "; ".join(result.notes) or None)

    def _inspect(self, engine: Engine) -> None:
        self.log.phase("inspect")
        chosen = gate.draw_prompts(self.examples, self.recipe.inspect.num_samples, self.recipe.grpo.seed)
        sampling = sampling_of(self.recipe, seed_offset=INSPECT_SEED_OFFSET)
        completions = engine.generate([example.prompt for example in chosen], sampling, self.log.progress)
        rows = [gate.scoring_row(one, made.num_tokens) for one, made in zip(chosen, completions, strict=True)]
        scored = self.composite.score([completion.text for completion in completions], rows)
        gate.write_samples(
            self.run,
            gate.make_samples(chosen, completions, scored),
            gate.fingerprint(self._subject()),
            seed=self.recipe.grpo.seed,
        )
        self.log.write("samples_drawn", num_samples=len(chosen))

    def _evaluate(self, engine: Engine, when: str) -> None:
        """Held-out success now, one sample a prompt at the run's temperature, and greedy beside it."""
        self.log.phase(f"eval-{when}")
        chosen = self.examples.heldout[: self.recipe.eval.num_prompts]
        prompts = [example.prompt for example in chosen]
        sampled = engine.generate(prompts, sampling_of(self.recipe, seed_offset=HELDOUT_SEED_OFFSET), self.log.progress)
        greedy = engine.generate(prompts, sampling_of(self.recipe, temperature=0.0))
        scored = self._score(chosen, sampled)
        correct = [one.correct is True for one in scored]
        saved = read_json(self.run.eval) or {"prompts": [example.text for example in chosen], "before": None}
        saved[when] = {
            "correct": correct,
            "greedy_successes": sum(one.correct is True for one in self._score(chosen, greedy)),
        }
        saved.setdefault("after", None)
        if saved["before"] and saved["after"]:
            saved["result"] = compare(saved["before"]["correct"], saved["after"]["correct"]).to_json()
        write_json(self.run.eval, saved)
        rows = [
            sample_row(example.text, completion.text, one)
            for example, completion, one in zip(chosen, sampled, scored, strict=True)
        ]
        folder = self.run.path / "eval"
        folder.mkdir(exist_ok=True)
        write_jsonl(folder / f"samples_{when}.jsonl", rows)
        self.log.write("evaluated", when=when, successes=sum(correct), n=len(correct))

    def _train(self, engine: Engine) -> None:
        if not (read_json(self.run.eval) or {}).get("before"):
            self._evaluate(engine, "before")
        self.training = True
        if is_first := os.environ.get("RANK", "0") == "0":
            for name in remove_torn(self.run.checkpoints):
                self.log.write("data_noted", message=f"{name} was cut off while it was written and is removed")
        checkpoint = latest_checkpoint(self.run.checkpoints)
        if checkpoint:
            self.log.write("resumed_from", path=str(checkpoint.relative_to(self.run.path)))
        self.log.phase("train")
        hooks = RunHooks(self.run, self.log, self.supervisor_pid, self.started)
        job = TrainJob(self.examples.train, self.composite, self.run.checkpoints, checkpoint, hooks, self._note)
        result = engine.train(job, self._announce)
        self.log.write(
            "trained", step=result.step, train_seconds=round(result.train_seconds, 3), stopped=result.stopped
        )
        if result.stopped:
            self.stopped = True
            self.log.write("stopped", step=result.step, reason=hooks.stop_reason)
            return
        if not is_first:
            return  # the first process saves and evaluates
        self.log.phase("save")
        engine.save(self.run.model)
        self._evaluate(engine, "after")

    def _announce(self, effective: Effective) -> None:
        write_json(self.run.effective, effective.to_json())
        new = [one for one in effective.differences if one not in self.told]
        self.told += new
        for one in new:
            words = one.reason or "no known reason"
            self.log.write(
                "setting_replaced", message=f"{one.key}: asked {one.asked!r}, in force {one.effective!r}: {words}"
            )

    def _note(self, event: str, fields: Mapping[str, Any]) -> None:
        self.log.write(event, **fields)


def template_arguments(task: Task) -> dict[str, Any]:
    """Extra arguments of the chat template."""
    thinking = {} if task.prompt.enable_thinking is None else {"enable_thinking": task.prompt.enable_thinking}
    return {**thinking, **task.prompt.template_arguments}


def sample_row(prompt: str, completion: str, scored: Scored) -> dict[str, Any]:
    """One completion with its scores, as samples/ and eval/ keep it."""
    return {
        "prompt": prompt,
        "completion": completion,
        "total": scored.total,
        "correct": scored.correct,
        "parts": {
            name: {"value": verdict.value, "reason": verdict.reason, "is_bug": verdict.is_bug}
            for name, verdict in scored.parts.items()
        },
    }


def finish(run: RunDir, stages: Sequence[str], supervisor_pid: int) -> ExitCode:
    """Run the worker and write why it ended. The worker's boundary: nothing escapes it."""
    worker: Worker | None = None
    log = EventLog(run)
    try:
        worker = Worker(run, stages, supervisor_pid)
        worker.carry_out()
    except SparkError as error:
        code = error.exit_code
        if worker and worker.training and isinstance(error, ConfigError):
            code = ExitCode.TRAINING_FAILED
        traceback.print_exc()
        log.write("worker_finished", exit_code=code, cause=error.message, hint=error.hint, stopped=False)
        return code
    except Exception as error:  # noqa: BLE001  the worker's boundary: the cause is recorded, the traceback kept in stderr.log
        traceback.print_exc()
        code = ExitCode.TRAINING_FAILED if worker and worker.training else ExitCode.INTERNAL
        log.write("worker_finished", exit_code=code, **describe_failure(error), stopped=False)
        return code
    log.write("worker_finished", exit_code=ExitCode.OK, cause=None, hint=None, stopped=worker.stopped)
    return ExitCode.OK


def describe_failure(error: Exception) -> dict[str, str]:
    """Cause and hint for an error of a library."""
    if type(error).__name__ == "OutOfMemoryError":
        return {
            "cause": f"out of device memory: {str(error).splitlines()[0]}",
            "hint": "spark-rl fit shows the phase that peaks and the cheapest change that makes it fit",
        }
    return {"cause": f"{type(error).__name__}: {error}", "hint": "the traceback is in stderr.log of the run"}


def shadow_of(path: Path, rank: int) -> Path:
    """Where another rank of a run on several processes writes: a folder of its own with the run's inputs in it, so that each
    file of the run keeps one writer. Checkpoints are shared."""
    shadow = path / "ranks" / str(rank)
    shutil.rmtree(shadow, ignore_errors=True)
    shadow.mkdir(parents=True)
    for file in path.glob("*.json"):
        shutil.copyfile(file, shadow / file.name)
    if (path / "inspect").is_dir():
        shutil.copytree(path / "inspect", shadow / "inspect")
    (shadow / "samples").mkdir()
    (path / "checkpoints").mkdir(exist_ok=True)
    (shadow / "checkpoints").symlink_to(path / "checkpoints")
    return shadow


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m spark_rl.worker")
    parser.add_argument("run", type=Path)
    parser.add_argument("--stages", required=True)
    args = parser.parse_args(argv)
    stages = args.stages.split(",")
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown:
        parser.error(f"unknown stages {unknown}")
    path = args.run.resolve()
    rank = int(os.environ.get("RANK", "0"))
    if rank:
        path = shadow_of(path, rank)
    os.chdir(path)  # caches that libraries compile go into the run, not into whatever folder the user stood in
    return finish(RunDir(path), stages, os.getppid())


if __name__ == "__main__":
    sys.exit(main())
