"""Bench: figures with units that can be, judged against the class, kept where fit and doctor look."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from spark_rl.bench import BenchResult, judge, measure, read_result, run_bench
from spark_rl.cli import main
from spark_rl.host import Machine, machine_class

RESULT = BenchResult(
    t=0.0, device="NVIDIA GB10", host_read_bytes_per_second=90e9, host_copy_bytes_per_second=80e9, matmul_flops=91.6e12, matmul_dtype="bfloat16",
    device_read_bytes_per_second=185e9, device_copy_bytes_per_second=164e9, disk_write_bytes_per_second=3e9, reference_loop_seconds=0.05,
)  # fmt: skip


def verdicts(result: BenchResult) -> dict[str, str]:
    return {str(one["what"]): str(one["verdict"]) for one in judge(result, machine_class("dgx-spark"))}


def test_a_healthy_spark_is_healthy() -> None:
    assert verdicts(RESULT) == {"memory read": "healthy", "matrix product": "healthy", "disk write": "healthy"}


def test_a_stuck_spark_is_low() -> None:
    """36.5 TFLOPS where a healthy unit has 91.6."""
    assert verdicts(replace(RESULT, matmul_flops=36.5e12))["matrix product"] == "low"


def test_the_hidden_slow_mode_is_low() -> None:
    assert verdicts(replace(RESULT, device_read_bytes_per_second=185e9 / 3.3))["memory read"] == "low"


def test_what_could_not_be_measured_is_not_judged() -> None:
    assert "memory read" not in verdicts(replace(RESULT, device_read_bytes_per_second=None))


def test_the_command_measures_this_machine_and_keeps_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert main(["bench", "--json", "--disk", str(tmp_path)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert 1e8 < shown["host_read_bytes_per_second"] < 1e13
    assert shown["matmul_flops"] > 1e8
    assert shown["disk_write_bytes_per_second"] > 1e6
    kept = read_result()
    assert kept is not None
    assert kept["host_read_bytes_per_second"] == shown["host_read_bytes_per_second"]
    assert list(tmp_path.glob(".spark_rl_bench_*")) == []


def test_figures_of_a_busy_machine_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (900.0, 0.0, 0.0))
    monkeypatch.setattr(measure, "ARRAY_BYTES", 1 << 16)
    result = run_bench(tmp_path, Machine("this host", "cpu", None, 0, None, None, None, None), tmp_path / "kept.json")
    assert any("busy" in note for note in result.notes)
    assert not (tmp_path / "kept.json").exists()


def test_a_folder_that_cannot_be_written_leaves_the_disk_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_rl.bench.measure import measure_disk

    assert measure_disk(tmp_path / "not" / "there") is None
