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
