"""The README says what is so: generated parts are up to date, and its example runs as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from spark_rl.dataset import load_examples
from spark_rl.rewards.composite import Composite
from spark_rl.task import load_task

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_generated_parts_are_up_to_date():
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "readme"), "--check"], check=False)
    assert done.returncode == 0, "run scripts/readme"


def test_the_worked_example_is_short():
    code = [line for text in (*blocks("toml"), *blocks("python")) for line in text.splitlines() if line.strip()]
    assert len([line for line in code if not line.startswith("#")]) <= 22


def test_the_worked_example_runs_as_written(tmp_path):
    pytest.importorskip("reasoning_gym")
    (task_text,), (reward_text,) = blocks("toml"), blocks("python")
    (tmp_path / "sums.toml").write_text(task_text)
    (tmp_path / "sums.py").write_text(reward_text)
    task = load_task(tmp_path / "sums.toml")
    examples = load_examples(task)
    composite = Composite(task.build_rewards())
    example = examples.train[0]
    right = str(example.row["answer"])
    scored = composite.score([right, "about " + right, "-99999"], [example.row] * 3)
    composite.close()
    assert [one.correct for one in scored] == [True, False, False]
    assert [one.total for one in scored] == [1.2, 0.0, 0.2]


def test_every_linked_file_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
