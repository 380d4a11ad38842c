"""Which lock files a host gets, where its torch comes from, and what setup says at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from _setup_plan import (
    Host,
    SetupError,
    Stamp,
    Wish,
    choose_locks,
    closing_line,
    detect_host,
    torch_fits,
    torch_sources,
)

CPU = Host("cpu", "no GPU, x86_64")
CUDA = Host("cuda", "NVIDIA, x86_64")


def with_driver(root: Path, text: str) -> Path:
    file = root / "proc/driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return root


def test_a_linux_machine_without_a_driver_trains_on_its_cpu(tmp_path: Path) -> None:
    assert detect_host("Linux", "aarch64", tmp_path) == Host("cpu", "no GPU, aarch64")


@pytest.mark.parametrize(
    "text",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 06:05:05 UTC 2025\n",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)\n",
    ],
    ids=["proprietary", "open"],
)
def test_a_driver_that_runs_cuda_13_brings_no_warning(tmp_path: Path, text: str) -> None:
    assert detect_host("Linux", "x86_64", with_driver(tmp_path, text)) == CUDA


def test_a_driver_older_than_cuda_13_is_named(tmp_path: Path) -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build\n"
    host = detect_host("Linux", "x86_64", with_driver(tmp_path, text))
    assert host.kind == "cuda"
    assert host.warning is not None
    assert "570" in host.warning


def test_gb10_is_told_by_its_name(tmp_path: Path) -> None:
    host = detect_host("Linux", "aarch64", tmp_path, gpus="GPU 0: NVIDIA GB10 (UUID: GPU-1)\n")
    assert host == Host("cuda", "DGX Spark (GB10)")


def test_wsl_has_its_gpu_without_a_driver_in_proc(tmp_path: Path) -> None:
    for file in ("usr/lib/wsl/lib/nvidia-smi", "dev/dxg"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    assert detect_host("Linux", "x86_64", tmp_path) == Host("cuda", "NVIDIA, x86_64, WSL2")


def test_nvidia_smi_without_a_gpu_is_no_gpu(tmp_path: Path) -> None:
    assert detect_host("Linux", "x86_64", tmp_path, gpus="No devices were found\n").kind == "cpu"


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "arm64"), ("Windows", "AMD64"), ("Linux", "riscv64")])
def test_elsewhere_the_light_set_is_installed_and_the_reason_said(system: str, machine: str, tmp_path: Path) -> None:
    host = detect_host(system, machine, tmp_path)
    assert choose_locks(Wish(), host) == ("light",)
    assert "the light commands work here" in host.name


@pytest.mark.parametrize(
    ("wish", "host", "locks"),
    [
        (Wish(), CPU, ("light", "train-cpu")),
        (Wish(), CUDA, ("light", "train-cuda")),
        (Wish(light=True), CUDA, ("light",)),
        (Wish(light=True, dev=True), CPU, ("light", "dev")),
        (Wish(dev=True, vllm_cpu=True), CPU, ("light", "train-cpu", "vllm-cpu", "dev")),
        (Wish(host="cpu"), CUDA, ("light", "train-cpu")),
    ],
)
def test_each_wish_has_its_lock_files(wish: Wish, host: Host, locks: tuple[str, ...]) -> None:
    assert choose_locks(wish, host) == locks


def test_what_an_earlier_setup_installed_stays() -> None:
    assert choose_locks(Wish(light=True), CPU, ("light", "train-cpu", "dev")) == ("light", "train-cpu", "dev")


def test_a_new_gpu_replaces_the_cpu_set() -> None:
    present = ("light", "train-cpu", "vllm-cpu", "dev")
    assert choose_locks(Wish(), CUDA, present) == ("light", "train-cuda", "dev")


def test_the_cpu_build_of_vllm_is_refused_beside_a_gpu() -> None:
    with pytest.raises(SetupError, match="without a GPU"):
        choose_locks(Wish(vllm_cpu=True), CUDA)


def test_a_cpu_build_that_pip_can_reach_is_taken() -> None:
    offered = "torch (2.15.0)\nAvailable versions: 2.15.0, 2.13.0+cpu, 2.13.0, 2.12.1"
    assert torch_sources(offered, "2.13.0") == ("local",)


@pytest.mark.parametrize("offered", ["Available versions: 2.15.0, 2.13.0", "Available versions: 12.13.0+cpu", ""])
def test_without_one_uv_is_asked_and_the_ordinary_wheel_comes_last(offered: str) -> None:
    assert torch_sources(offered, "2.13.0") == ("uv", "ordinary")


def test_a_cuda_host_does_not_keep_a_cpu_build_of_torch() -> None:
    assert torch_fits("2.13.0+cpu", "2.13.0", ("light", "train-cpu"))
    assert torch_fits("2.13.0", "2.13.0", ("light", "train-cpu"))
    assert not torch_fits("2.13.0+cpu", "2.13.0", ("light", "train-cuda"))
    assert not torch_fits(None, "2.13.0", ("light", "train-cpu"))


def test_the_closing_line_says_what_is_lacking() -> None:
    stamp = Stamp("/p", "k", ("light", "train-cuda"), {}, ("pycosat",), "2.13.0", cuda=False)
    line = closing_line(CUDA, stamp)
    assert "torch sees no GPU" in line
    assert "not built: pycosat" in line
    assert "\n" not in line
