"""Two trainer processes over gloo, launched by accelerate, are one process with the same global batch."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.train, pytest.mark.slow]

DRIVER = Path(__file__).with_name("drive_two_processes.py")
ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def one_step(folder: Path, method: str, processes: int) -> dict[str, Any]:
    """Loss and gradients of one step on recorded completions."""
    import torch

    out = folder / f"{processes}.pt"
    job = [str(DRIVER), str(out), method, str(processes)]
    launch = [
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_machines",
        "1",
        "--num_processes",
        str(processes),
    ]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", str(free_port())]
    done = subprocess.run(
        [sys.executable, *(launch if processes > 1 else []), *job],
        capture_output=True,
        text=True,
        cwd=folder,
        # accelerate launches several processes as it would for GPUs; this variable is what keeps them on the CPU.
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            "ACCELERATE_USE_CPU": "true",
            "PYTHONPATH": str(ROOT),
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(out, weights_only=True)


def test_loss_and_gradients_of_two_processes_equal_those_of_one(tmp_path: Path) -> None:
    alone, together = (one_step(tmp_path, "full", processes) for processes in (1, 2))
    assert together["backend"] == "gloo" and alone["backend"] is None
    assert together["loss"] == pytest.approx(alone["loss"], abs=1e-6)
    assert together["reward"] == pytest.approx(alone["reward"])
    largest = max(gradient.abs().max().item() for gradient in alone["gradients"].values())
    assert largest > 1e-3, "a step without a gradient would prove nothing"
    assert set(alone["gradients"]) == set(together["gradients"])
    for name, gradient in alone["gradients"].items():
        assert (gradient - together["gradients"][name]).abs().max().item() <= 1e-5 * largest, name


def test_a_whole_run_over_two_processes_has_one_writer_for_each_file(tmp_path: Path) -> None:
    """The command that launch-plan prints, kept on the CPU: oracle-signed, trained, saved and evaluated by rank 0."""
    from spark_rl.recipe import resolve
    from spark_rl.rundir import create_run, read_json, read_jsonl, write_json
    from spark_rl.task import load_task

    task = load_task("sort-digits")
    sets = ["engine.name=plain", "grpo.max_steps=3", "grpo.per_device_train_batch_size=16", "eval.num_prompts=20"]
    recipe = resolve("cpu-tiny", task.overrides, sets)
    run = create_run(tmp_path, "two")
    write_json(run.task, {"name": task.name, "path": str(task.path.resolve()), "digest": task.file_digest()})
    write_json(run.recipe, recipe.to_json())
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "ACCELERATE_USE_CPU": "true"}

    def worker(launch: list[str], stages: str) -> None:
        command = [sys.executable, *launch, "-m", "spark_rl.worker", str(run.path), "--stages", stages]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]

    worker([], "inspect,oracle")
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1", "--num_processes", "2"]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", str(free_port())]
    worker(launch, "train")
    assert [row["step"] for row in read_jsonl(run.metrics).rows] == [1, 2, 3]
    assert (read_json(run.eval) or {})["after"] and (run.model / "config.json").exists()
    assert not (run.path / "ranks" / "1" / "model").exists()
