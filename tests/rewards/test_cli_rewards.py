"""`spark-rl rewards score|check` on small files, and that rewards stay light to import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark_rl.cli.main import main

TASK = """
[task]
name = "sums"
title = "Sums"

[data]
train = "train.jsonl"
heldout_size = 2
columns = { answer = "gold" }

[prompt]
template = "{question}"
chat = false

[[reward]]
name = "format"
kind = "format"
means = "format"
weight = 0.2
tags = ["answer"]
nothing_outside = false

[[reward]]
name = "correct"
kind = "math"
means = "correct"
weight = 1.0
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    rows = [{"question": f"What is {n} plus {n}, in words or digits?", "gold": str(2 * n)} for n in range(20, 30)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = tmp_path / "sums.toml"
    path.write_text(TASK)
    return path


@pytest.fixture
def completions(tmp_path: Path) -> Path:
    rows = [
        {"completion": "<answer>4</answer>", "gold": "4", "is_correct": True},
        {"completion": "The answer is 5.", "gold": "4", "is_correct": False},
        {"completion": "<answer>4</answer>", "gold": "4", "is_correct": False},
    ]
    path = tmp_path / "completions.jsonl"
    path.write_text("\ufeff" + "\n".join(map(json.dumps, rows)))
    return path


def test_scoring_a_file_shows_parts_and_disagreements(
    task: Path, completions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rewards", "score", "--task", str(task), "--in", str(completions)]) == 0
    out = capsys.readouterr().out
    assert "agreement 66.67 % on 3 of 3 rows; TPR 1.000, TNR 0.500" in out
    assert "row 2: label False, judged True" in out


def test_scoring_as_json_is_one_object_a_line(
    task: Path, completions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rewards", "score", "--task", str(task), "--in", str(completions), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row.get("total") for row in rows] == [1.2, 0.0, 1.2, None]
    assert rows[-1]["summary"]["agreement"]["disagreements"] == [2]


def test_a_missing_column_is_named(task: Path, completions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewards", "score", "--task", str(task), "--in", str(completions), "--label", "iscorrect"]) == 2
    assert "did you mean 'is_correct'?" in capsys.readouterr().err


def test_a_sound_reward_passes_the_check(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewards", "check", "--task", str(task), "--rows", "4", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["problems"] == []
    assert report["recognised"]["boxed"] == 1.0


def test_a_reward_that_pays_for_length_fails_the_check(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (task.parent / "bad.py").write_text(
        "def reward(completions, **columns):\n    return [min(1.0, len(c) / 40) for c in completions]\n"
    )
    task.write_text(TASK.replace('kind = "math"', 'kind = "python"\nfile = "bad.py"'))
    assert main(["rewards", "check", "--task", str(task), "--rows", "2"]) == 2
    assert "attack 'padding' earns up to 1" in capsys.readouterr().err


def test_importing_and_building_rewards_loads_nothing_heavy() -> None:
    code = """
import sys
from pathlib import Path
from spark_rl.rewards import Composite, RewardPart, registry
kinds = [k for k in registry.KINDS if k not in ("python", "unit_tests")]
options = {"format": {"tags": ["a"]}, "regex": {"pattern": "a"}, "json_schema": {"schema": {}},
           "reasoning_gym": {"dataset": "gcd"}, "length_penalty": {"max_length": 9, "buffer": 3}}
Composite.build([RewardPart(k, k, options=options.get(k, {})) for k in kinds], Path())
heavy = {"torch", "transformers", "trl", "sympy", "math_verify", "jsonschema", "reasoning_gym", "datasets", "numpy"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
