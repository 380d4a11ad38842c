"""A run whose recipe does not say how many steps it has: unknown is shown as N/A and null, never as 0."""

from __future__ import annotations

import json

import pytest

from spark_rl.cli import main
from spark_rl.headless import Follower, seconds_left
from spark_rl.rundir import JsonlWriter, RunDir, create_run
from spark_rl.runstate import max_steps_of


def run_with(folder, recipe: str) -> RunDir:
    run = create_run(folder / "runs", "x")
    run.recipe.write_text(recipe)
    JsonlWriter(run.events).append({"event": "supervisor_started", "pid": 1})
    writer = JsonlWriter(run.metrics)
    for step in (1, 2, 3):
        writer.append({"step": step, "reward": 0.5})
    return run


def shown(capsys, *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


RECIPES = ["{}", '{"grpo": {}}', '{"grpo": null}', '{"grpo": {"max_steps": 0}}', '{"grpo": {"max_steps": "40"}}']


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("command", [("ls",), ("watch", "--once"), ("watch",)])
def test_an_unknown_number_of_steps_is_not_a_number(tmp_path, capsys, command, recipe):
    run = run_with(tmp_path, recipe)
    text = shown(capsys, *command, "--runs", str(run.path.parent))
    assert "step 3/N/A" in text and "left" not in text
    answer = json.loads(shown(capsys, *command, "--runs", str(run.path.parent), "--json"))
    assert (answer["step"], answer["max_steps"]) == (3, None)


def test_a_known_number_of_steps_is_shown(tmp_path, capsys):
    run = run_with(tmp_path, '{"grpo": {"max_steps": 40}}')
    assert "step 3/40" in shown(capsys, "ls", "--runs", str(run.path.parent))


def test_following_and_reporting_a_run_of_unknown_length_say_so(tmp_path, capsys):
    run = run_with(tmp_path, "{}")
    lines = [line.text for line in Follower(run, max_steps_of({})).new_lines()]
    assert lines[-1].strip().startswith("step 3/N/A") and "left" not in lines[-1]
    assert seconds_left([{"step": 1, "t": 1.0}, {"step": 2, "t": 2.0}], None) is None
    shown(capsys, "report", "--runs", str(run.path.parent))
    assert "killed at step 3 of N/A" in run.report.read_text()
