"""A machine with two cards, through the real pynvml: the run's card is read alone, and the other moves nothing.

Card 0 is an RTX 4090 that drives a display, card 1 an H100.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

H100 = "GPU-fake-65"

LOOK = f"""
import time
from dataclasses import replace
from spark_rl.guard.decide import Guard
from spark_rl.guard.limits import limits_for
from spark_rl.telemetry import Sampler
def settle(sampler):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        reading = sampler.read()
        if reading.missing.get("gpus") != "starting":
            return reading
def actions_of_a_minute(uuid):
    reading = settle(Sampler(gpu_uuid=uuid))
    guard = Guard(limits_for(False, None))
    return [action.kind for second in range(60) for action in guard.observe(replace(reading, monotonic=float(second)))]
H100 = {H100!r}
"""


def test_both_cards_are_known_and_the_one_without_a_display_is_chosen(run_with_nvml: Any) -> None:
    code = """
from dataclasses import asdict
from spark_rl.gpu_choice import read_gpus
from spark_rl.host import detect_host
print(json.dumps({"gpus": [asdict(gpu) for gpu in read_gpus()], "machine": asdict(detect_host())}))
"""
    found = run_with_nvml("two_cards", code)
    assert [gpu["name"] for gpu in found["gpus"]] == ["NVIDIA GeForce RTX 4090", "NVIDIA H100 80GB HBM3"]
    assert [gpu["drives_display"] for gpu in found["gpus"]] == [True, False]
    machine = found["machine"]
    assert (machine["gpu_index"], machine["gpu_uuid"], machine["gpu_count"]) == (1, H100, 2)
    assert machine["device_total_bytes"] == 81559 << 20
    assert machine["notes"][0].startswith("GPU 1 of 2 is used")


@pytest.mark.parametrize(("visible", "index"), [(H100, 1), ("0", 0)])
def test_inside_a_worker_the_visible_card_is_found(run_with_nvml: Any, visible: str, index: int) -> None:
    code = f"""
import os
os.environ["CUDA_VISIBLE_DEVICES"] = {visible!r}
from spark_rl.host import detect_host
print(detect_host().gpu_index)
"""
    assert run_with_nvml("two_cards", code) == index


def test_a_card_that_fell_off_the_bus_is_not_chosen(run_with_nvml: Any) -> None:
    code = 'mood("lost0")\nfrom spark_rl.host import detect_host\nmachine = detect_host()\nprint(json.dumps([machine.gpu_index, machine.gpu_count]))'
    assert run_with_nvml("two_cards", code) == [1, 2]


def test_only_the_runs_card_is_read(run_with_nvml: Any) -> None:
    row = run_with_nvml("two_cards", LOOK + "print(json.dumps(settle(Sampler(gpu_uuid=H100)).to_row()))")
    assert [gpu["index"] for gpu in row["gpus"]] == [1]
    assert [path for path in row["missing"] if path.startswith("gpus.0.")] == []
    assert "gpus.1.fan_percent" in row["missing"]


def test_heat_of_another_card_pauses_nothing(run_with_nvml: Any) -> None:
    code = LOOK + 'mood("hot0")\nprint(json.dumps([actions_of_a_minute(H100), actions_of_a_minute("GPU-fake-48")]))'
    of_the_run, of_the_other = run_with_nvml("two_cards", code)
    assert of_the_run == []
    assert of_the_other[0] == "pause"


def test_another_card_that_is_lost_costs_no_reading(run_with_nvml: Any) -> None:
    code = LOOK + 'mood("lost0")\nprint(json.dumps(settle(Sampler(gpu_uuid=H100)).to_row()))'
    row = run_with_nvml("two_cards", code)
    assert row["gpus"][0]["power_watts"] > 0
    assert "gpus" not in row["missing"]


def test_the_runs_own_card_lost_is_said(run_with_nvml: Any) -> None:
    code = LOOK + 'mood("lost0")\nprint(json.dumps(settle(Sampler(gpu_uuid="GPU-fake-48")).to_row()))'
    assert run_with_nvml("two_cards", code)["missing"]["gpus"] == "driver_down"


def test_a_program_beside_the_run_on_its_card_is_named(run_with_nvml: Any) -> None:
    code = (
        LOOK
        + """
import os
from spark_rl.telemetry.watcher import Watcher
sampler = Sampler(gpu_uuid=H100, worker_pid=os.getpid())
settle(sampler)
watcher = Watcher()
watcher.observe(sampler.read())
print(json.dumps([finding.subject for finding in watcher.standing if finding.rule == "co_tenant"]))
"""
    )
    assert run_with_nvml("two_cards", code) == ["gpu1"]


def test_fit_says_which_card_and_why(run_with_nvml: Any) -> None:
    code = """
import contextlib, io
from spark_rl.cli import main
out = io.StringIO()
with contextlib.redirect_stdout(out):
    code = main(["fit", "--profile", "cpu-tiny", "--json"])
print(json.dumps([code, out.getvalue()]))
"""
    exit_code, out = run_with_nvml("two_cards", code)
    report = json.loads(out)
    assert exit_code == 0
    assert (report["gpu_index"], report["gpu_uuid"]) == (1, H100)
    assert any(note.startswith("GPU 1 of 2 is used") for note in report["notes"])


def test_fit_refuses_a_card_that_is_not_there(run_with_nvml: Any) -> None:
    code = """
import contextlib, io
from spark_rl.cli import main
err = io.StringIO()
with contextlib.redirect_stderr(err):
    code = main(["fit", "--profile", "cpu-tiny", "--gpu", "5"])
print(json.dumps([code, err.getvalue()]))
"""
    exit_code, err = run_with_nvml("two_cards", code)
    assert exit_code == 2
    assert "no GPU of this machine is called 5" in err and "NVIDIA H100 80GB HBM3" in err
