"""The guard beside a run: acting before writing, events with readings before and after, a full disk ends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_rl.errors import RunDirError
from spark_rl.guard import Action, effects
from spark_rl.guard.run_watch import RunWatch, WorkerControl
from spark_rl.rundir import RunDir
from spark_rl.supervisor import judge_end
from spark_rl.telemetry.bandwidth import Bandwidth
from spark_rl.telemetry.reading import GpuReading, Reading
from spark_rl.telemetry.watcher import Notice
from spark_rl.units import GIB

from .conftest import at, healthy_gb10


def uma(seconds: float, headroom_gib: float) -> Reading:
    return at(seconds, headroom_gib, gpu=healthy_gb10(seconds).gpus[0])


class Run:
    """A run watched without processes or time: readings go in, what was asked and written comes out."""

    def __init__(
        self,
        readings: list[Reading],
        *,
        training: bool = True,
        disk_full: bool = False,
        planned: int | None = None,
        rollouts: Any = None,
    ) -> None:
        self.readings = readings
        self.position = -1
        self.log: list[str] = []
        self.events: list[Mapping[str, Any]] = []
        self.rows: list[Mapping[str, Any]] = []
        self.disk_full = disk_full
        control = WorkerControl(
            ask=lambda request: self.log.append(f"ask {request}"),
            is_training=lambda: training,
            terminate=lambda: self.log.append("terminate"),
            kill=lambda: self.log.append("kill"),
        )
        self.watch = RunWatch(
            self, control, _Rows(self, self.events, "event"), _Rows(self, self.rows, "row"), planned_peak_bytes=planned,
            rollouts=rollouts, clock=lambda: self.readings[self.position].monotonic
        )  # fmt: skip

    def read(self) -> Reading:
        self.position += 1
        return self.readings[self.position]

    def play(self) -> Run:
        while self.position + 1 < len(self.readings):
            self.watch.step()
        return self

    def named(self, name: str) -> list[Mapping[str, Any]]:
        return [event for event in self.events if event["event"] == name]


class _Rows:
    def __init__(self, run: Run, rows: list[Mapping[str, Any]], kind: str) -> None:
        self.run, self.rows, self.kind = run, rows, kind

    def append(self, row: Mapping[str, Any]) -> None:
        if self.run.disk_full:
            raise RunDirError("no space left on device")
        self.rows.append(row)
        if row.get("event") == "guard_acted":
            self.run.log.append("written")


def test_the_kill_comes_before_its_event_is_written() -> None:
    run = Run([uma(0.0, 60), uma(0.5, 8.2), uma(1.0, 8.2)]).play()
    assert run.log == ["kill", "written"]
    assert run.watch.stopped_because is not None
    assert run.watch.stopped_because.kind == "kill"


def test_an_action_is_followed_by_the_readings_after_it() -> None:
    readings = [uma(float(second), 11.0) for second in range(10)] + [uma(10.0 + second, 30.0) for second in range(60)]
    run = Run(readings).play()
    acted, effect = run.named("guard_acted")[0], run.named("guard_effect")[0]
    assert acted["action"] == effect["action"] == "shed"
    assert effect["before"]["headroom_gib"] == 11.0
    assert effect["after"]["headroom_gib"] == 30.0


def test_a_stop_while_nothing_is_trained_ends_the_worker_at_once() -> None:
    assert Run([uma(float(second), 9.8) for second in range(4)], training=False).play().log[0] == "terminate"
    assert Run([uma(float(second), 9.8) for second in range(4)], training=True).play().log[0] == "ask stop"


def test_a_full_disk_does_not_end_the_guarding() -> None:
    run = Run([uma(0.0, 60), uma(0.5, 8.2)], disk_full=True).play()
    assert run.log == ["kill"]
    assert run.watch.write_failure == "no space left on device"


def test_rows_are_written_at_their_own_pace_and_faster_when_memory_falls() -> None:
    calm = Run([uma(index * 0.5, 60) for index in range(21)]).play()
    falling = Run([uma(index * 0.1, 22 - index * 0.05) for index in range(100)]).play()
    assert len(calm.rows) == 6
    assert len(falling.rows) >= 50


def test_a_driver_that_answers_late_raises_the_floors_then() -> None:
    run = Run([at(0.0, 60), at(0.5, 60), uma(1.0, 60)]).play()
    assert [event["floor_bytes"] for event in run.named("guard_started")] == [2 * GIB, 8 * GIB]


def test_the_limits_are_told_at_the_start() -> None:
    run = Run([healthy_gb10(0.0)], planned=20 * GIB).play()
    started = run.named("guard_started")[0]
    assert started["floor_bytes"] == 8 * GIB
    assert started["expected_low_bytes"] == 20 * GIB
    assert "12.00 GiB" in started["message"]


def test_heat_asks_the_worker_to_pause_and_to_go_on() -> None:
    readings = [
        healthy_gb10(float(second), temperature_c=91.0 if second < 20 else 75.0, margin_c=3.0 if second < 20 else 19.0)
        for second in range(40)
    ]
    assert [entry for entry in Run(readings).play().log if entry != "written"] == ["ask pause", "ask resume"]


def test_findings_are_events_of_the_run() -> None:
    readings = [
        healthy_gb10(second * 2.0, sm_clock_mhz=799.0 + second % 7, power_watts=19.5 + second % 3, temperature_c=48.0)
        for second in range(60)
    ]
    found = Run(readings).play().named("telemetry_finding")
    assert [(row["state"], row["rule"]) for row in found] == [("begin", "stuck_low")]
    assert found[0]["advice"]


class Rollouts:
    newest = Bandwidth(200e9, "derived", "a rollout")
    peak_bytes_per_second = 1008e9

    def look(self) -> tuple[Notice, ...]:
        return ()


def test_bandwidth_is_counted_on_a_card_and_derived_on_a_spark() -> None:
    card = GpuReading(0, "NVIDIA GeForce RTX 4090", memory_utilization_percent=61.0)
    on_card = Run([at(0.0, 60, gpu=card)], rollouts=Rollouts()).play().rows[-1]["bandwidth"]
    on_spark = Run([uma(0.0, 60)], rollouts=Rollouts()).play().rows[-1]["bandwidth"]
    assert (on_card["source"], on_card["bytes_per_second"]) == ("counted", pytest.approx(614.9e9, rel=0.01))
    assert (on_spark["source"], on_spark["bytes_per_second"]) == ("derived", 200e9)


def test_the_guard_never_signals_its_own_group() -> None:
    import os

    assert effects.kill_worker(os.getpgrp()) is False
    assert effects.kill_worker(1) is False


def test_locking_memory_says_what_it_did() -> None:
    import subprocess
    import sys

    code = "from spark_rl.guard.effects import lock_memory; print(lock_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "locked in memory" in done.stdout


def test_a_user_with_a_small_lock_limit_pre_allocates() -> None:
    import resource
    import subprocess
    import sys

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))

    code = "import os; os.geteuid = lambda: 1000; from spark_rl.guard.effects import lock_memory; print(lock_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, preexec_fn=limit)
    assert "pre-allocated" in done.stdout


@pytest.mark.parametrize(
    ("kernel_killed", "words"),
    [(True, "by the kernel, for want of memory"), (False, "by a person or a program"), (None, "or by the kernel")],
)
def test_a_kill_that_was_not_the_guards_is_told_from_the_kernels(
    tmp_path: Path, kernel_killed: bool | None, words: str
) -> None:
    code, ended = judge_end(RunDir(tmp_path), -9, None, kernel_killed)
    assert code == 7
    assert words in ended["cause"]


def test_a_run_that_the_guard_ended_exits_with_eight() -> None:
    action = Action("stop", "memory", "headroom is below 10.00 GiB")
    code, ended = judge_end(RunDir(Path("unused")), 0, action)
    assert code == 8
    assert ended["cause"] == "stopped by the guard: headroom is below 10.00 GiB"
    assert "resume" in ended["hint"]
