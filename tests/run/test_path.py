"""The whole path with the fake engine, and every way in which it may be interrupted."""

from __future__ import annotations

import os
import signal
import sys
from types import SimpleNamespace

import pytest

from spark_rl import control
from spark_rl.checkpoints import COMPLETE_MARK, latest_checkpoint
from spark_rl.cli import main
from spark_rl.cli.follow import follow
from spark_rl.errors import ExitCode
from spark_rl.rundir import read_json, read_jsonl, write_json
from spark_rl.runstate import read_run
from spark_rl.supervisor import start as begin
from tests.run.conftest import ALL_STAGES, make_run, steps, wait_until, worker_pid


def events(run):
    return [row["event"] for row in read_run(run).events]


def test_a_run_passes_probe_gate_training_and_evaluation_in_order(tmp_path, supervised):
    run = make_run(tmp_path, "grpo.max_steps=20")
    assert supervised(run).wait() == 0
    state = read_run(run)
    assert state.status == "finished"
    phases = [row["phase"] for row in state.events if row["event"] == "phase_started"]
    assert phases == ["load", "probe", "inspect", "eval-before", "train", "save", "eval-after"]
    assert steps(run) == list(range(1, 21))
    saved = read_json(run.eval)
    assert saved["after"]["correct"].count(True) > saved["before"]["correct"].count(True)


def test_training_without_a_signature_is_refused(tmp_path, supervised):
    run = make_run(tmp_path, "grpo.max_steps=5")
    assert supervised(run, ("probe", "inspect", "train")).wait() == 4
    state = read_run(run)
    assert state.status == "refused"
    assert "training needs a signed inspection" in state.cause
    assert steps(run) == []


def test_a_killed_worker_leaves_its_cause_and_resumes_at_the_last_checkpoint(tmp_path, supervised):
    run = make_run(tmp_path, "grpo.max_steps=60")
    supervisor = supervised(run)
    wait_until(lambda: 15 in steps(run))
    os.kill(worker_pid(run), signal.SIGKILL)
    assert supervisor.wait() == 7
    state = read_run(run)
    assert state.status == "failed"
    assert "SIGKILL" in state.cause
    assert supervised(run, ("train",)).wait() == 0
    state = read_run(run)
    assert [row["step"] for row in state.metrics] == list(range(1, 61))
    assert any(row["event"] == "resumed_from" for row in state.events)


def test_a_killed_supervisor_makes_the_worker_save_and_end(tmp_path, supervised):
    run = make_run(tmp_path, "grpo.max_steps=2000")
    supervisor = supervised(run)
    wait_until(lambda: 15 in steps(run))
    supervisor.kill()
    wait_until(lambda: "worker_finished" in events(run))
    wait_until(lambda: read_run(run).status == "killed")
    last_checkpoint = [row["step"] for row in read_run(run).events if row["event"] == "checkpoint_saved"][-1]
    assert last_checkpoint == steps(run)[-1]


def test_both_killed_leaves_a_run_that_opens_and_resumes_without_gaps(tmp_path, supervised):
    run = make_run(tmp_path, "grpo.max_steps=60")
    supervisor = supervised(run)
    wait_until(lambda: 25 in steps(run))
    worker = worker_pid(run)
    supervisor.kill()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: read_run(run).status == "killed")
    assert supervised(run, ("train",)).wait() == 0
    state = read_run(run)
    assert [row["step"] for row in state.metrics] == list(range(1, 61))


def test_a_checkpoint_that_was_cut_off_is_not_resumed_from(tmp_path, supervised):
    run = make_run(tmp_path, "grpo.max_steps=30")
    supervisor = supervised(run)
    wait_until(lambda: 25 in steps(run))
    control.send(run, "stop")
    supervisor.wait()
    torn = run.checkpoints / "checkpoint-29"
    torn.mkdir(exist_ok=True)
    (torn / "complete").unlink(missing_ok=True)
    assert supervised(run, ("train",)).wait() == 0
    resumed = [row["path"] for row in read_run(run).events if row["event"] == "resumed_from"]
    assert resumed and resumed[-1] != "checkpoints/checkpoint-29"
    assert not torn.exists() and any(
        "checkpoint-29 was cut off" in row.get("message", "") for row in read_run(run).events
    )


def test_a_checkpoint_kept_under_another_name_is_left_alone(tmp_path):
    for name in ("checkpoint-20", "checkpoint-3", "checkpoint-20-best", "checkpoint-3 copy-99", "checkpoint-"):
        (tmp_path / name).mkdir()
        (tmp_path / name / COMPLETE_MARK).touch()
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoint-20"


def test_a_finished_run_is_exported_when_its_task_has_gone(tmp_path, monkeypatch):
    run = make_run(tmp_path)
    write_json(run.eval, {"prompts": ["sort 50391="], "before": None})
    write_json(run.task, {"name": "gone", "path": str(tmp_path / "gone.toml"), "digest": ""})
    asked = []

    def export(run, recipe, out, prompts, as_adapter):
        asked.extend(prompts)
        return SimpleNamespace(to_json=dict)

    monkeypatch.setitem(sys.modules, "spark_rl.export", SimpleNamespace(export=export))
    assert main(["export", str(run.path), "--json"]) == 0
    assert asked == ["sort 50391="]


def test_stop_saves_a_checkpoint_and_ends_with_zero(tmp_path, supervised):
    run = make_run(tmp_path, "grpo.max_steps=2000")
    supervisor = supervised(run)
    wait_until(lambda: 5 in steps(run))
    control.send(run, "stop")
    assert supervisor.wait() == 0
    state = read_run(run)
    assert state.status == "stopped"
    assert (run.checkpoints / f"checkpoint-{state.step}" / "complete").is_file()


def test_pause_holds_the_steps_until_resume(tmp_path, supervised):
    run = make_run(tmp_path, "grpo.max_steps=40")
    supervisor = supervised(run)
    wait_until(lambda: 3 in steps(run))
    control.send(run, "pause")
    wait_until(lambda: "paused" in events(run))
    held = len(steps(run))
    control.send(run, "resume")
    assert supervisor.wait() == 0
    assert steps(run) == list(range(1, 41))
    paused = next(row for row in read_run(run).events if row["event"] == "paused")
    assert paused["step"] == held


def test_an_old_stop_request_does_not_stop_a_resumed_run(tmp_path, supervised):
    run = make_run(tmp_path, "grpo.max_steps=40")
    supervisor = supervised(run)
    wait_until(lambda: 5 in steps(run))
    control.send(run, "stop")
    supervisor.wait()
    assert supervised(run, ("train",)).wait() == 0
    assert read_run(run).status == "finished"


def test_a_stop_asked_for_while_the_supervisor_starts_is_carried_out(tmp_path):
    run = make_run(tmp_path, "grpo.max_steps=300")
    process = begin(run, ALL_STAGES)
    control.send(run, "stop")
    assert process.wait() == 0
    assert read_run(run).status == "stopped" and steps(run) == []


def test_a_stop_asked_for_while_a_resumed_run_loads_is_carried_out(tmp_path, supervised):
    run = make_run(tmp_path, "grpo.max_steps=300")
    first = supervised(run)
    wait_until(lambda: 5 in steps(run))
    control.send(run, "stop")
    first.wait()
    reached = steps(run)[-1]
    process = begin(run, ("train",))
    control.send(run, "stop")
    assert process.wait() == 0
    assert read_run(run).status == "stopped" and steps(run)[-1] == reached


def test_a_command_whose_supervisor_is_killed_does_not_end_as_an_earlier_stage_did(tmp_path, supervised):
    run = make_run(tmp_path, "grpo.max_steps=2000")
    assert supervised(run, ("probe", "inspect", "oracle")).wait() == 0
    second = supervised(run, ("train",))
    wait_until(lambda: steps(run))
    second.kill()
    assert follow(run, 2000, second, from_start=False) == ExitCode.TRAINING_FAILED


def test_a_second_interrupt_does_not_wait_and_says_that_the_run_stops_by_itself(tmp_path, monkeypatch, capsys):
    run = make_run(tmp_path)

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("spark_rl.cli.follow.time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        follow(run, 10, SimpleNamespace(poll=lambda: None), from_start=True)
    first, second = capsys.readouterr().err.splitlines()
    assert control.read_request(run, newer_than=0.0).request == "stop"
    assert "saves a checkpoint first" in first and "leaves it running" not in first
    assert "stops by itself" in second and "left running" not in second


def test_a_second_supervisor_is_refused_while_one_lives(tmp_path, supervised):
    run = make_run(tmp_path, "grpo.max_steps=2000")
    supervised(run)
    wait_until(lambda: steps(run))
    second = supervised(run, ("train",))
    assert second.wait() != 0
    control.send(run, "stop")


def test_samples_of_every_step_are_kept_with_their_scores(tmp_path, supervised):
    run = make_run(tmp_path, "grpo.max_steps=3")
    assert supervised(run).wait() == 0
    rows = read_jsonl(run.samples / "000002.jsonl").rows
    assert len(rows) == 64
    assert set(rows[0]["parts"]) == {"format", "correct"}
