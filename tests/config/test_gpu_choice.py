"""Which GPU of several a run uses: chosen by what NVML says, told in a sentence, kept by the run, seen alone by its worker."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from spark_rl import launch
from spark_rl.cli import main
from spark_rl.errors import ConfigError, DoesNotFit
from spark_rl.gpu_choice import GpuReading, choose_gpu, visible_gpus
from spark_rl.host import Machine, machine_class, machine_from_readings, parse_meminfo
from spark_rl.rundir import RunDir, read_json, write_json
from spark_rl.runstate import describe_process
from spark_rl.supervisor import worker_environment
from spark_rl.units import GIB
from tests.run.conftest import make_run, supervised, wait_until, worker_pid

__all__ = ["supervised"]

MEMORY = parse_meminfo("MemTotal: 65000000 kB\nMemAvailable: 60000000 kB\n")


def card(index: int, free_gib: float, *, display: bool | None = False, count: int = 2) -> GpuReading:
    free = int(free_gib * GIB)
    return GpuReading("RTX 4090", 24 * GIB, free, count, "8.9", index, f"GPU-{index}abc-{index}", display)


DESK, IDLE = card(0, 23, display=True), card(1, 20)
GB10 = GpuReading("NVIDIA GB10", None, None, 1, "12.1", 0, "GPU-spark")
DESK_HOST, IDLE_HOST = (asdict(machine_from_readings(one, MEMORY)) for one in (DESK, IDLE))


def chosen(gpus: list[GpuReading], asked: str | None = None, visible: str | None = None) -> int | None:
    gpu = choose_gpu(gpus, asked, visible).gpu
    return None if gpu is None else gpu.index


def test_the_card_with_most_free_memory_is_taken() -> None:
    assert chosen([card(0, 20), card(1, 23), card(2, 22)]) == 1


def test_a_card_that_drives_a_display_is_left_alone() -> None:
    assert chosen([DESK, IDLE]) == 1


def test_where_all_drive_a_display_free_memory_decides() -> None:
    assert chosen([card(0, 20, display=True), card(1, 22, display=True)]) == 1


def test_a_card_that_does_not_tell_about_its_display_counts_as_having_none() -> None:
    assert chosen([DESK, card(1, 20, display=None)]) == 1


def test_of_equal_cards_the_first_is_taken() -> None:
    assert chosen([card(0, 22), card(1, 22)]) == 0


def test_the_choice_is_said_with_its_reason() -> None:
    why = choose_gpu([DESK, IDLE]).why
    assert why == (
        "GPU 1 of 2 is used (RTX 4090, 20.00 GiB free): the only one that drives no display; --gpu chooses another"
    )


def test_nothing_is_said_where_there_was_nothing_to_choose() -> None:
    assert choose_gpu([card(0, 20, count=1)]).why is None
    assert choose_gpu([GB10]).why is None
    assert choose_gpu([]).why is None


def test_gb10_is_taken_though_it_tells_no_memory() -> None:
    assert choose_gpu([GB10]).gpu is GB10


@pytest.mark.parametrize("asked", ["0", "GPU-0abc-0", "GPU-0a", "gpu-0ABC", "0abc"])
def test_a_card_is_asked_for_by_index_or_by_the_start_of_its_uuid(asked: str) -> None:
    assert chosen([DESK, IDLE], asked) == 0


def test_a_card_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match="no GPU of this machine is called 7") as caught:
        choose_gpu([DESK, IDLE], "7")
    assert caught.value.hint == (
        "there are 0: RTX 4090, 23.00 GiB free (GPU-0abc-0); 1: RTX 4090, 20.00 GiB free (GPU-1abc-1)"
    )


def test_the_start_of_two_uuids_is_refused() -> None:
    with pytest.raises(ConfigError, match="2 GPUs have a UUID that begins with GPU-"):
        choose_gpu([replace(DESK, uuid="GPU-a1"), replace(IDLE, uuid="GPU-a2")], "GPU-a")


def test_asking_for_a_gpu_on_a_machine_without_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="no NVIDIA GPU answers in this machine"):
        choose_gpu([], "0")


def test_the_environment_leaves_out_what_it_hides() -> None:
    assert chosen([DESK, IDLE], visible="0") == 0
    assert chosen([card(0, 20), card(1, 23), card(2, 22)], visible="0,GPU-2abc-2") == 2
    why = choose_gpu([DESK, IDLE], visible="0").why
    assert why is not None and "the only one that CUDA_VISIBLE_DEVICES=0 leaves" in why


@pytest.mark.parametrize("visible", ["", "-1", "9", "-1,0"])
def test_an_environment_that_hides_every_gpu_means_the_cpu(visible: str) -> None:
    choice = choose_gpu([DESK, IDLE], visible=visible)
    assert choice.gpu is None
    assert choice.why is not None and "hides every GPU" in choice.why


def test_an_entry_that_names_no_gpu_ends_the_list_as_it_does_for_cuda() -> None:
    assert visible_gpus([DESK, IDLE], "1,-1,0") == [IDLE]


def test_a_card_that_is_hidden_cannot_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="GPU 1 is hidden by CUDA_VISIBLE_DEVICES=0"):
        choose_gpu([DESK, IDLE], "1", "0")


def test_a_slice_of_a_card_is_not_narrowed_and_said() -> None:
    choice = choose_gpu([card(0, 20)], visible="MIG-1234")
    assert choice.gpu is not None and choice.gpu.uuid is None
    assert choice.why is not None and "slice" in choice.why
    assert "CUDA_VISIBLE_DEVICES" not in worker_environment({}, asdict(machine_from_readings(choice.gpu, MEMORY)))


# ----------------------------------------------------------------------------------------------- the worker


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run that was made for card 1."""
    made = make_run(tmp_path)
    write_json(made.host, IDLE_HOST)
    return made


def test_the_worker_sees_the_chosen_card_alone() -> None:
    environment = worker_environment({"HOME": "/home/me"}, IDLE_HOST)
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-1abc-1"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert environment["HOME"] == "/home/me"


def test_a_real_worker_is_started_with_the_runs_card(run: RunDir, supervised: Callable[..., Any]) -> None:
    supervisor = supervised(run, ("probe",))
    environment = wait_until(lambda: psutil.Process(worker_pid(run)).environ())
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-1abc-1"
    assert supervisor.wait(timeout=60) == 0


def test_the_worker_finds_the_card_that_the_command_chose() -> None:
    for visible in (None, "0,1", "1"):
        first = choose_gpu([DESK, IDLE], visible=visible).gpu
        shell = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        environment = worker_environment(shell, asdict(machine_from_readings(first, MEMORY)))
        # Loading the model has taken memory by then.
        assert chosen([DESK, replace(IDLE, free_bytes=GIB)], visible=environment["CUDA_VISIBLE_DEVICES"]) == 1


@pytest.mark.parametrize("gpu", [None, GB10, card(0, 20, count=1)])
def test_nothing_is_narrowed_where_there_is_no_other_card(gpu: GpuReading | None) -> None:
    shell = {"CUDA_VISIBLE_DEVICES": "0"}
    environment = worker_environment(shell, asdict(machine_from_readings(gpu, MEMORY)))
    assert environment["CUDA_VISIBLE_DEVICES"] == "0"
    assert "CUDA_DEVICE_ORDER" not in environment


def test_a_run_of_an_older_version_starts_as_it_did() -> None:
    old = {name: value for name, value in IDLE_HOST.items() if name not in ("gpu_index", "gpu_uuid")}
    assert "CUDA_VISIBLE_DEVICES" not in worker_environment({}, old)


# --------------------------------------------------------------------------------------------- a run goes on


@pytest.fixture
def machine_with(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From now on this host has these GPUs."""

    def have(*gpus: GpuReading, visible: str | None = None) -> None:
        def detect(gpu: str | None = None) -> Machine:
            return machine_from_readings(choose_gpu(gpus, gpu, visible).gpu, MEMORY)

        monkeypatch.setattr(launch, "detect_host", detect)

    return have


def test_a_run_goes_on_with_its_own_card_whatever_is_free_now(run: RunDir, machine_with: Any) -> None:
    machine_with(replace(DESK, drives_display=False), replace(IDLE, free_bytes=GIB))
    assert launch.settle_gpu(run) is None
    assert (read_json(run.host) or {})["gpu_uuid"] == IDLE.uuid


def test_a_run_is_moved_when_that_is_asked_for(run: RunDir, machine_with: Any) -> None:
    machine_with(DESK, IDLE)
    machine = launch.settle_gpu(run, "0")
    assert machine is not None and machine.gpu_index == 0
    assert (read_json(run.host) or {})["gpu_uuid"] == DESK.uuid


def test_a_run_whose_card_is_gone_asks_which_other(run: RunDir, machine_with: Any) -> None:
    machine_with(DESK, card(2, 20))
    with pytest.raises(ConfigError, match="cannot go on with its GPU") as caught:
        launch.settle_gpu(run)
    assert "--gpu INDEX moves it" in (caught.value.hint or "")


def test_a_run_whose_card_is_hidden_does_not_go_on_elsewhere(run: RunDir, machine_with: Any) -> None:
    machine_with(DESK, IDLE, visible="0")
    with pytest.raises(ConfigError, match="hidden by CUDA_VISIBLE_DEVICES=0"):
        launch.settle_gpu(run)


def test_a_run_whose_card_was_replaced_goes_on_with_the_only_one(run: RunDir, machine_with: Any) -> None:
    machine_with(card(0, 20, count=1))
    machine = launch.settle_gpu(run)
    assert machine is not None and machine.gpu_count == 1


def test_a_run_is_not_moved_to_a_card_that_is_full(run: RunDir, machine_with: Any) -> None:
    machine_with(replace(DESK, free_bytes=GIB // 64), IDLE)
    with pytest.raises(DoesNotFit):
        launch.settle_gpu(run, "0")
    assert (read_json(run.host) or {})["gpu_uuid"] == IDLE.uuid


def test_a_run_that_is_going_on_keeps_what_its_host_file_says(run: RunDir, machine_with: Any) -> None:
    machine_with(DESK, IDLE)
    write_json(run.processes, {"supervisor": describe_process(os.getpid()), "worker": None})
    assert launch.settle_gpu(run, "0") is None
    assert (read_json(run.host) or {})["gpu_uuid"] == IDLE.uuid


# ------------------------------------------------------------------------------------------- the command line


def test_a_named_machine_has_no_index() -> None:
    assert machine_class("24").gpu_index is None


@pytest.mark.parametrize("other", [["--machine", "24"], ["--gpu-gib", "24"]])
def test_a_gpu_of_this_host_and_another_machine_exclude_each_other(
    other: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--profile", "cpu-tiny", "--gpu", "0", *other]) == 2
    assert "exclude" in capsys.readouterr().err
