"""A small task with its data, a model folder and scored samples, all made in a temporary folder; no model runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spark_rl.dataset import Examples, load_examples
from spark_rl.gate import Sample, draw_prompts, fingerprint, make_samples, require_signoff, sign, write_samples
from spark_rl.gate.opinions import Opinion, ReaderKind, Says, write_opinions
from spark_rl.gate.samples import read_samples
from spark_rl.gate.signoff import SignOff
from spark_rl.gate.subject import Subject
from spark_rl.recipe import Recipe, resolve
from spark_rl.rewards.composite import Composite, Scored
from spark_rl.rundir import RunDir, create_run, write_json
from spark_rl.task import Task, load_task

TASK = """
[task]
name = "sums"
title = "Add two numbers"
demo = {demo}

[data]
train = "train.jsonl"
heldout_size = 10

[prompt]
template = "{{question}}"
chat = {chat}

[[reward]]
name = "format"
kind = "regex"
means = "format"
weight = 0.2
pattern = '<\\d+>'
match = "fullmatch"

[[reward]]
name = "correct"
kind = "python"
means = "correct"
file = "my_reward.py"
"""

REWARD = """
def reward(completions, answer, **columns):
    return [1.0 if text == f"<{right}>" else 0.0 for text, right in zip(completions, answer)]
"""

NUM_SAMPLES = 50


@cache
def cached_task(path: Path, content: bytes) -> Task:
    return load_task(path)


@cache
def cached_recipe(sets: tuple[str, ...]) -> Recipe:
    return resolve("cpu-tiny", {}, sets)


_SCORED: dict[str, list[Scored]] = {}
"""By everything that a score depends on: user functions run in a process whose start takes a quarter of a second."""


def score(task: Task, texts: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[Scored]:
    source = task.base_dir / "my_reward.py"
    key = repr([task.file_digest(), source.read_text() if source.exists() else "", texts, rows])
    if key not in _SCORED:
        composite = Composite(task.build_rewards(), task.scoring.gate_on_format)
        _SCORED[key] = composite.score(texts, rows)
        composite.close()
    return list(_SCORED[key])


@dataclass(frozen=True)
class Said:
    """A completion as an engine hands it over."""

    text: str
    num_tokens: int
    truncated: bool = False


@dataclass
class Bench:
    """One recipe, task and model, and short ways to do what the commands do."""

    folder: Path
    profile_sets: list[str] = field(default_factory=list)
    num_runs: int = 0

    @property
    def task_file(self) -> Path:
        return self.folder / "task.toml"

    @property
    def model_dir(self) -> Path:
        return self.folder / "model"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def task(self) -> Task:
        return cached_task(self.task_file, self.task_file.read_bytes())

    @property
    def examples(self) -> Examples:
        return load_examples(self.task)

    @property
    def recipe(self) -> Recipe:
        # The model is handed over beside the recipe; its id here would only spoil the cache.
        return cached_recipe(tuple(self.profile_sets))

    @property
    def subject(self) -> Subject:
        return Subject(self.recipe, self.task, self.examples, self.model_dir)

    def fingerprint(self) -> dict[str, str]:
        return fingerprint(self.subject)

    def new_run(self) -> RunDir:
        self.num_runs += 1
        run = create_run(self.runs, f"run{self.num_runs}", clock=lambda: 1_700_000_000.0 + self.num_runs)
        write_json(run.recipe, self.recipe.to_json())
        write_json(run.task, {"path": str(self.task_file), "digest": self.task.file_digest()})
        return run

    def empty_run(self) -> RunDir:
        """A run directory that is about nothing in particular."""
        self.num_runs += 1
        return create_run(self.runs, f"run{self.num_runs}", clock=lambda: 1_700_000_000.0)

    def samples(self, num: int = NUM_SAMPLES, seed: int = 1) -> list[Sample]:
        """Every third right, every third wrong, every third malformed."""
        examples = draw_prompts(self.examples, num, seed)
        answers = [str(example.row["answer"]) for example in examples]
        texts = [(f"<{answer}>", "<7>", f"It is {answer}")[index % 3] for index, answer in enumerate(answers)]
        scored = score(self.task, texts, [example.row for example in examples])
        return make_samples(examples, [Said(text, len(text)) for text in texts], scored)

    def sampled_run(self, num: int = NUM_SAMPLES, seed: int = 1) -> RunDir:
        run = self.new_run()
        write_samples(run, self.samples(num, seed), self.fingerprint(), seed)
        return run

    def say(
        self, run: RunDir, says: Says, ids: list[str], reader: str = "anna", kind: ReaderKind = "person", note: str = ""
    ) -> None:
        samples = {sample.id: sample for sample in read_samples(run)}
        opinions = [Opinion(name, says, samples[name].digest(), reader, kind, note) for name in ids]
        write_opinions(run, opinions, clock=lambda: 1_700_000_100.0)

    def agree_to_all(self, run: RunDir, reader: str = "anna", kind: ReaderKind = "person") -> None:
        self.say(run, "agree", [sample.id for sample in read_samples(run)], reader, kind)

    def sign(self, run: RunDir) -> SignOff:
        return sign(run, self.subject)

    def signed_run(self) -> RunDir:
        run = self.sampled_run()
        self.agree_to_all(run)
        self.sign(run)
        return run

    def require(self, run: RunDir) -> SignOff:
        return require_signoff(run, self.subject)

    def rewrite(self, name: str, change: Callable[[str], str]) -> None:
        path = self.folder / name
        text = path.read_text()
        changed = change(text)
        assert changed != text
        path.write_text(changed)


def task_text(demo: bool = False, chat: bool = False) -> str:
    return TASK.format(demo=str(demo).lower(), chat=str(chat).lower())


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests cut no power; flushing each of thousands of small files takes most of their time."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "task.toml").write_text(task_text())
    (tmp_path / "my_reward.py").write_text(REWARD)
    rows: list[dict[str, Any]] = [{"question": f"{n} + {n + 1} =", "answer": str(2 * n + 1)} for n in range(100)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "llama"}')
    (model / "tokenizer.json").write_text("{}")
    (model / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    (model / "model.safetensors").write_bytes(bytes(range(256)) * 400)
    return Bench(tmp_path)


@pytest.fixture
def shipped(bench: Bench) -> Bench:
    """The same, about the shipped demo task."""
    task = Path(__file__).resolve().parents[2] / "spark_rl" / "data" / "tasks" / "sort-digits.toml"
    return ShippedBench(bench.folder, task)


class ShippedBench(Bench):
    def __init__(self, folder: Path, task: Path) -> None:
        super().__init__(folder)
        self.shipped_task = task

    @property
    def task_file(self) -> Path:
        return self.shipped_task
