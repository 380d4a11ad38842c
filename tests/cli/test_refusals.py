"""Wrong input at the command line: one clear sentence, the documented exit code, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark_rl.cli import main

FAKE = ["--set", "engine.name=fake", "--set", "grpo.max_steps=4"]

TASK = """
[task]
name = "mine"
title = "a task of a user"
[data]
train = "d.jsonl"
heldout_size = 20
[prompt]
template = "{prompt}"
chat = false
[[reward]]
name = "form"
kind = "regex"
pattern = '\\[\\d+\\]'
means = "format"
weight = 0.2
[[reward]]
name = "right"
kind = "python"
file = "reward.py"
function = "score"
means = "correct"
"""

GOOD_REWARD = """
def score(completions, answer, **_):
    return [float(text == right) for text, right in zip(completions, answer)]
"""


@pytest.fixture
def spark_rl(tmp_path, capsys):
    """Run a command in this process; (exit code, stdout, stderr)."""

    def run(*arguments):
        code = main([*arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return int(code), captured.out, captured.err

    return run


@pytest.fixture
def task(tmp_path):
    """A user's task in a folder of its own."""
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "t.toml").write_text(TASK)
    (folder / "reward.py").write_text(GOOD_REWARD)
    rows = [{"prompt": f"sort {n}=", "answer": "[" + "".join(sorted(str(n))) + "]"} for n in range(20001, 20161)]
    (folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def run_it(spark_rl, tmp_path, *extra, command="run", task="sort-digits"):
    return spark_rl(
        command, "--profile", "cpu-tiny", "--task", str(task), "--runs", str(tmp_path / "runs"), *FAKE, *extra
    )


def test_a_group_of_four_is_refused(spark_rl, tmp_path):
    code, _, err = run_it(spark_rl, tmp_path, "--set", "grpo.num_generations=4")
    assert code == 2 and "below the floor of 8" in err


def test_a_typo_names_the_nearest_key(spark_rl, tmp_path):
    code, _, err = run_it(spark_rl, tmp_path, "--set", "grpo.learning_rte=1")
    assert code == 2 and "did you mean 'learning_rate'?" in err


def test_a_missing_profile_and_task_are_named(spark_rl):
    code, _, err = spark_rl("run")
    assert code == 2 and "--profile and --task missing" in err


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda rows: "", "the data file is empty"),
        (lambda rows: rows + '{"prompt": "sort', "torn last line"),
        (lambda rows: rows.replace('"answer"', '"antwort"'), "answer"),
    ],
    ids=["empty", "torn", "column"],
)
def test_spoilt_data_is_named_by_file(spark_rl, tmp_path, task, spoil, words):
    data = task / "d.jsonl"
    data.write_text(spoil(data.read_text()))
    code, _, err = run_it(spark_rl, tmp_path, task=task / "t.toml")
    assert code == 2 and words in err


def test_a_model_path_that_is_not_there(spark_rl, tmp_path):
    code, _, err = run_it(spark_rl, tmp_path, "--set", f"model.id={tmp_path}/nowhere")
    assert code == 2 and "nowhere" in err


def test_a_vision_model_is_refused_as_reference_only(spark_rl, tmp_path):
    folder = tmp_path / "vlm"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps(
            {"model_type": "qwen2_5_vl", "vision_config": {"depth": 32}, "hidden_size": 64, "num_hidden_layers": 2}
        )
    )
    code, _, err = run_it(spark_rl, tmp_path, "--set", f"model.id={folder}")
    assert code == 4 and "reference-only" in err


def test_a_variant_without_its_symptom_is_refused(spark_rl, tmp_path):
    code, _, err = run_it(spark_rl, tmp_path, "--set", "grpo.loss_type=dapo")
    assert code == 4 and "entropy collapse" in err


def test_a_recipe_that_cannot_fit_ends_with_three(spark_rl, tmp_path):
    code, *_ = run_it(
        spark_rl, tmp_path, "--set", "grpo.per_device_train_batch_size=8000000", "--set", "grpo.num_generations=8"
    )
    assert code == 3


def test_training_without_a_signature_is_refused(spark_rl, tmp_path):
    code, _, err = run_it(spark_rl, tmp_path, command="train")
    assert code == 4 and "needs a signed inspection" in err


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise KeyError('gold')", "KeyError"),
        ("return 1.0", "expected a list"),
        ("return [1.0] * (len(completions) - 1)", "expected"),
        ("return [float('nan')] * len(completions)", "not a finite number"),
    ],
    ids=["raises", "scalar", "short", "nan"],
)
def test_a_broken_reward_is_a_fault_of_the_task_before_training(spark_rl, tmp_path, task, body, words):
    (task / "reward.py").write_text(f"def score(completions, **_):\n    {body}\n")
    code, _, err = run_it(spark_rl, tmp_path, task=task / "t.toml", command="probe")
    assert code == 2 and words in err


def test_a_reward_of_none_everywhere_is_never_counted_as_zero(spark_rl, tmp_path, task):
    (task / "reward.py").write_text("def score(completions, **_):\n    return [None] * len(completions)\n")
    code, _, err = run_it(spark_rl, tmp_path, task=task / "t.toml", command="probe")
    assert code in (2, 4) and "Right in 0 of" not in err


def test_one_broken_run_does_not_hide_the_others(spark_rl, tmp_path):
    root = tmp_path / "runs"
    for name, text in (("a", "{"), ("b", "{}")):
        (root / name).mkdir(parents=True)
        (root / name / "recipe.json").write_text(text)
    code, out, _ = spark_rl("ls", "--runs", str(root), "--json")
    assert code == 0 and [json.loads(line)["status"] for line in out.splitlines()] == ["unreadable", "created"]


def test_a_task_file_changed_after_signing_voids_the_signature(spark_rl, tmp_path):
    root = tmp_path / "runs"
    code, *_ = run_it(spark_rl, tmp_path, command="probe")
    assert code == 0
    run = next(root.iterdir())
    code, *_ = spark_rl("inspect", "sample", "--run", str(run))
    assert code == 0
    verdicts = tmp_path / "verdicts.jsonl"
    code, *_ = spark_rl("inspect", "export", str(run), str(verdicts))
    rows = [json.loads(line) for line in verdicts.read_text().splitlines()]
    for row in rows:
        row.update(verdict="agree", reader="script")
    verdicts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert spark_rl("inspect", "import", str(run), str(verdicts))[0] == 0
    assert spark_rl("inspect", "sign", str(run))[0] == 0
    saved = json.loads((run / "task.json").read_text())
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in ("sort-digits.toml", "sort-digits.train.jsonl", "sort-digits.heldout.jsonl"):
        (copy / file).write_bytes(Path(saved["path"]).with_name(file).read_bytes())
    (copy / "sort-digits.toml").write_text(
        (copy / "sort-digits.toml").read_text().replace("weight = 0.2", "weight = 0.3")
    )
    saved["path"] = str(copy / "sort-digits.toml")
    (run / "task.json").write_text(json.dumps(saved))
    code, _, err = spark_rl("train", "--run", str(run))
    assert code == 4 and "task file" in err


def test_plain_text_and_no_colour_without_a_terminal(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "spark_rl", "profiles", "ls"],
        capture_output=True,
        env={"PATH": "", "LC_ALL": "C", "TERM": "dumb"},
        check=False,
    )
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
