"""Doctor: each of G1-G10 fires on what it is for and is quiet on a sound machine; odd machines get sentences, not tracebacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_rl.cli import main
from spark_rl.doctor import Check, Environment, Gpu, examine, general
from spark_rl.doctor.conflicts import CONFLICTS, standing_conflicts
from spark_rl.doctor.environment import CodeIsolation
from spark_rl.doctor.gather import code_isolation, gather, torch_cuda_version
from spark_rl.errors import Refused
from spark_rl.sandbox.methods import METHODS
from spark_rl.telemetry.findings import Finding
from spark_rl.telemetry.sampler import NoGpu, Sampler
from spark_rl.units import GIB

from .conftest import at, healthy_gb10

PACKAGES = {
    "torch": "2.13.0", "transformers": "5.17.0", "trl": "1.14.2", "datasets": "4.8.5", "peft": "0.21.2", "accelerate": "1.15.0",
    "bitsandbytes": "0.50.2", "unsloth": "2026.10.9", "unsloth_zoo": "2026.10.9", "vllm": "0.30.0", "torchao": "0.18.0", "nvidia-ml-py": "13.615.71",
}  # fmt: skip

SPARK = Environment(
    architecture="aarch64",
    kernel="6.14.0-1015-nvidia",
    product_name="NVIDIA_DGX_Spark",
    gpus=(Gpu(0, "NVIDIA GB10", (12, 1), True),),
    driver_version="580.173.02",
    driver_cuda="13.0",
    torch_cuda="13.0",
    packages=PACKAGES,
    pins={"torch": "2.13.0", "trl": "1.14.2"},
    reading=healthy_gb10(10.0),
    runs_free_bytes=500 * GIB,
    cache_free_bytes=500 * GIB,
    runs_writable=True,
    bench={"device_read_bytes_per_second": 185e9},
)
"""A DGX Spark as it should be."""


def check(environment: Environment, id: str) -> Check:
    return next(one for one in examine(environment).checks if one.id == id)


def with_memory(**host: Any) -> Environment:
    reading = healthy_gb10(10.0)
    return replace(SPARK, reading=replace(reading, host=replace(reading.host, **host)))


def with_gpu(**changes: Any) -> Environment:
    return replace(SPARK, reading=healthy_gb10(10.0, **changes))


STUCK = Finding("stuck_low", "gpu0", "severe", "busy, cool and slow", {}, "pull the brick")

TRIGGERS: list[tuple[str, Environment, str]] = [
    ("G1", replace(SPARK, torch_cuda="12.9"), "blocked"),
    ("G1", replace(SPARK, torch_cuda=""), "blocked"),
    ("G1", replace(SPARK, variables={"TRITON_PTXAS_PATH": "/usr/local/cuda-12.9/bin/ptxas"}), "warning"),
    ("G2", replace(SPARK, packages={**PACKAGES, "flash-attn": "2.8.3"}), "warning"),
    ("G3", with_memory(mem_available_bytes=15 * GIB), "warning"),
    ("G3", with_memory(swap_used_bytes=9 * GIB, mem_available_bytes=60 * GIB), "warning"),
    ("G3", with_memory(mem_available_bytes=113 * GIB, mem_free_bytes=7 * GIB, page_cache_bytes=100 * GIB), "info"),
    ("G4", replace(SPARK, findings=(STUCK,)), "warning"),
    ("G4", with_gpu(temperature_c=90.0, margin_c=4.0), "warning"),
    ("G4", with_gpu(sm_clock_mhz=799.0, power_watts=19.5, temperature_c=48.0), "warning"),
    ("G5", replace(SPARK, bench={"device_read_bytes_per_second": 70e9}), "warning"),
    ("G6", with_gpu(other_memory_bytes=65 * GIB, other_process="llama-server (114687)"), "warning"),
    ("G7", replace(SPARK, variables={"TORCH_CUDA_ARCH_LIST": "8.0;9.0"}), "warning"),
    ("G7", replace(SPARK, variables={"VLLM_USE_FLASHINFER_MOE_FP4": "1"}), "warning"),
    ("G8", replace(SPARK, driver_version="590.44.01"), "warning"),
    ("G8", replace(SPARK, kernel="6.17.0-1008-nvidia"), "warning"),
    ("G8", replace(SPARK, packages={**PACKAGES, "nvidia-ml-py": "12.560.30"}), "warning"),
    ("G9", replace(SPARK, packages={**PACKAGES, "torch": "2.11.0+cu130"}), "warning"),
    ("G10", replace(SPARK, variables={"VLLM_TENSOR_PARALLEL_SIZE": "2"}), "warning"),
]


@pytest.mark.parametrize(("id", "environment", "status"), TRIGGERS)
def test_each_spark_check_fires_on_what_it_is_for(id: str, environment: Environment, status: str) -> None:
    found = check(environment, id)
    assert found.status == status
    assert found.evidence
    assert found.fix


@pytest.mark.parametrize("number", range(1, 11))
def test_each_spark_check_is_quiet_on_a_sound_spark(number: int) -> None:
    assert check(SPARK, f"G{number}").status == "ok"


@pytest.mark.parametrize("number", range(1, 11))
def test_each_spark_check_is_not_applicable_elsewhere(number: int) -> None:
    card = replace(SPARK, product_name=None, gpus=(Gpu(0, "NVIDIA GeForce RTX 4090", (8, 9), False, 24 * GIB),))
    assert check(card, f"G{number}").status == "not applicable"


@pytest.mark.parametrize("number", range(1, 11))
def test_each_spark_check_says_unknown_when_nothing_is_known(number: int) -> None:
    bare = Environment(gpus=(Gpu(0, "NVIDIA GB10", None, True),))
    assert check(bare, f"G{number}").status in ("unknown", "ok")


def test_a_sound_spark_is_ready() -> None:
    assert examine(SPARK).verdict == "ready"


def test_warnings_do_not_block_and_blocks_do() -> None:
    assert examine(with_gpu(other_memory_bytes=65 * GIB)).verdict == "ready-with-warnings"
    assert examine(replace(SPARK, torch_cuda="12.4")).verdict == "blocked"


@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_other_systems_are_told_what_works(system: str) -> None:
    found = check(Environment(system=system), "platform")
    assert found.status == "blocked"
    assert "light commands" in found.fix


def test_a_torch_newer_than_the_driver_is_blocked() -> None:
    card = replace(
        SPARK, product_name=None, gpus=(Gpu(0, "NVIDIA H100 80GB HBM3", (9, 0)),), driver_cuda="12.4", torch_cuda="13.0"
    )
    assert check(card, "cuda").status == "blocked"


def test_a_driver_that_does_not_answer_blocks_and_no_driver_does_not() -> None:
    assert check(replace(SPARK, gpus=(), gpu_state="driver_down"), "driver").status == "blocked"
    assert check(replace(SPARK, gpus=(), gpu_state="no_driver"), "driver").status == "info"


CONFLICTING: list[dict[str, str]] = [
    {"trl": "1.16.0"},
    {"trl": "1.9.0"},
    {"trl": "1.16.0", "unsloth": "2026.10.9"},
    {"vllm": "0.14.1", "unsloth": "2026.10.9"},
    {"vllm": "0.33.0", "trl": "1.14.2"},
    {"vllm": "0.30.0", "transformers": "4.57.1"},
    {"unsloth": "2026.10.9", "unsloth_zoo": "2026.9.1"},
    {"unsloth": "2026.9.4", "unsloth_zoo": "2026.9.4"},
    {"pynvml": "13.0.1", "nvidia-ml-py": "13.615.71"},
    {"torchao": "0.16.0", "torch": "2.13.0"},
]


@pytest.mark.parametrize(
    ("conflict", "packages"),
    list(zip(CONFLICTS, CONFLICTING, strict=True)),
    ids=lambda value: getattr(value, "packages", ""),
)
def test_each_known_conflict_is_found(conflict: Any, packages: dict[str, str]) -> None:
    assert conflict in standing_conflicts(Environment(packages=packages))


def test_the_pinned_set_has_no_conflict() -> None:
    assert standing_conflicts(SPARK) == []
    assert standing_conflicts(Environment(packages=PACKAGES)) == [], "without a GPU too"


def test_the_report_of_this_machine_is_json_and_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "env-report.json"
    code = main(["doctor", "--json", "--report", str(target)])
    shown = json.loads(capsys.readouterr().out)
    assert shown["verdict"] in ("ready", "ready-with-warnings", "blocked")
    assert code == (5 if shown["verdict"] == "blocked" else 0)
    assert {one["id"] for one in shown["checks"]} >= {f"G{number}" for number in range(1, 11)}
    assert json.loads(target.read_text())["verdict"] == shown["verdict"]


def test_a_container_without_proc_and_sys_is_examined(tmp_path: Path) -> None:
    sampler = Sampler(gpu=NoGpu(), proc=tmp_path / "proc", sys=tmp_path / "sys")
    environment = gather(tmp_path / "runs", tmp_path / "proc", tmp_path / "sys", sampler, sleep=lambda _: None)
    report = examine(environment)
    assert check(environment, "sensors").status == "info"
    assert "verdict" in report.to_text()


def test_a_user_without_root_gets_the_same_answer(tmp_path: Path) -> None:
    """Under another user's id, with whatever Python of this version that user may run."""
    if os.geteuid() != 0:
        pytest.skip("this test runs as an ordinary user already: the others here are the same")
    project = Path(__file__).resolve().parents[2]
    packages = sysconfig.get_paths()["purelib"]
    home = tmp_path / "home"
    home.mkdir(mode=0o777)
    for folder in (*home.parents, home):
        if folder.is_relative_to(tmp_path.parents[1]):
            folder.chmod(0o755 if folder != home else 0o777)
    for python in (
        sys.executable,
        f"/usr/bin/python3.{sys.version_info.minor}",
        f"/usr/local/bin/python3.{sys.version_info.minor}",
    ):
        command = [python, "-m", "spark_rl", "doctor", "--json", "--report", "-", "--runs", str(home)]
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": f"{project}:{packages}"}
        try:
            done = subprocess.run(command, user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=False, env=env, cwd=project)  # fmt: skip
        except (PermissionError, FileNotFoundError):
            continue
        if "Permission denied" in done.stderr or "No module named" in done.stderr:
            continue
        assert "Traceback" not in done.stderr, done.stderr
        assert json.loads(done.stdout)["verdict"] in ("ready", "ready-with-warnings", "blocked")
        return
    pytest.skip("no Python here that another user may run")


def gb10_recording(path: Path, cases_dir: Path) -> Path:
    """The readings of XuehaiPan/nvitop PR#208 and gpud PR#1170 as one machine, a composite."""
    rows = {row["source"]: row for row in json.loads((cases_dir / "hw" / "gb10_readings.json").read_text())["gb10"]}
    nvitop = rows["XuehaiPan/nvitop PR#208"]
    util, watts, celsius = nvitop["nvidia_smi_csv"].split(",")[-3:]
    machine = {
        "machine": {
            "driver_version": nvitop["driver"],
            "architecture": "aarch64",
            "product_name": "NVIDIA_DGX_Spark",
            "gpus": [{"compute_capability": [12, 1]}],
        }
    }
    host = {
        "mem_total_bytes": nvitop["meminfo_MemTotal_kB"] * 1024,
        "mem_available_bytes": nvitop["meminfo_MemAvailable_kB"] * 1024,
        "mem_free_bytes": rows["leptonai/gpud PR#1170"]["free_bytes"],
        "page_cache_bytes": 100 * GIB,
    }
    gpu = {
        "index": 0,
        "name": "NVIDIA GB10",
        "unified": True,
        "utilization_percent": float(util.split()[0]),
        "power_watts": float(watts.split()[0]),
        "temperature_c": float(celsius),
    }
    path.write_text(
        "\n".join(json.dumps(row) for row in (machine, {"v": 1, "t": 0.0, "host": host, "gpus": [gpu]})) + "\n"
    )
    return path


def test_a_replayed_gb10_is_examined_by_what_was_recorded(
    tmp_path: Path, cases_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = gb10_recording(tmp_path / "gb10.jsonl", cases_dir)
    assert main(["doctor", "--replay", str(recording), "--report", "-", "--json"]) == 0
    checks = {one["id"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    assert "113.07 GiB of 121.69 GiB can be had" in checks["G3"]["evidence"]
    assert "page cache" in checks["G3"]["evidence"]
    assert checks["G4"]["status"] == "ok", "idle: 11 W at 35 °C is no fault"
    assert checks["G1"]["status"] == "unknown", "this machine's torch is not the recorded one's"
    assert checks["stack"]["status"] == "unknown"
    assert "power_limit_watts" in checks["sensors"]["evidence"]


def test_a_replayed_stuck_spark_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readings = [
        healthy_gb10(float(s), sm_clock_mhz=799.0 + s % 7, power_watts=19.5 + s % 3, temperature_c=48.0)
        for s in range(0, 80, 2)
    ]
    path = tmp_path / "stuck.jsonl"
    path.write_text("".join(json.dumps(reading.to_row()) + "\n" for reading in readings))
    main(["doctor", "--replay", str(path), "--report", "-"])
    shown = capsys.readouterr().out
    assert "WARN  G4" in shown
    assert "60 s" in shown


def test_doctor_through_the_driver_of_a_gb10(run_with_nvml: Any) -> None:
    code = """
from pathlib import Path
from spark_rl.doctor.gather import gather
from spark_rl.doctor import examine
print(json.dumps(examine(gather(Path("."))).to_json()))
"""
    report = run_with_nvml("gb10", code)
    assert report["machine"]["gpus"][0]["name"] == "NVIDIA GB10"
    assert report["machine"]["driver_version"] == "580.173.02"
    statuses = {one["id"]: one["status"] for one in report["checks"]}
    assert statuses["G4"] == "ok"
    assert statuses["G6"] == "warning"
    assert statuses["G1"] in ("ok", "blocked", "unknown")


def test_text_fits_eighty_columns() -> None:
    assert all(len(line) <= 80 for line in examine(SPARK).to_text(80).splitlines())


def test_the_cuda_version_of_torch_is_read_without_importing_it() -> None:
    code = "import sys; from spark_rl.doctor.gather import torch_cuda_version as f; f(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    version = torch_cuda_version()
    assert version is None or version == "" or version[0].isdigit()


def test_the_strongest_sandbox_is_well_and_a_weaker_one_says_why_and_how_to_get_the_strongest() -> None:
    best = check(replace(SPARK, code_isolation=CodeIsolation("bubblewrap", "bubblewrap namespaces")), "sandbox")
    assert (best.status, best.evidence) == ("ok", "bubblewrap namespaces")
    tried = {"bubblewrap": "bwrap is not installed"}
    weaker = check(replace(SPARK, code_isolation=CodeIsolation("landlock", "Landlock", tried)), "sandbox")
    assert weaker.status == "info"
    assert "Landlock; bubblewrap: bwrap is not installed. Unit-test rewards run" in weaker.evidence
    assert "install bubblewrap" in weaker.fix
    assert weaker.figures == {"method": "landlock", "tried": tried}


def test_a_machine_that_isolates_nothing_is_warned_that_unit_test_rewards_are_refused() -> None:
    none = check(replace(SPARK, code_isolation=CodeIsolation(None, "landlock: the kernel is too old")), "sandbox")
    assert none.status == "warning"
    assert "landlock: the kernel is too old" in none.evidence and "refused here (exit 4)" in none.evidence
    assert "install bubblewrap" in none.fix
    assert check(SPARK, "sandbox").status == "unknown", "a recording does not tell"


def test_each_method_of_the_sandbox_but_the_strongest_has_its_meaning_in_doctor() -> None:
    assert (general.STRONGEST, *general.WEAKER) == METHODS


def test_doctor_reports_the_isolation_that_the_sandbox_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise Refused("cannot be isolated:\n  bubblewrap: bwrap is not installed\n  landlock: no")

    monkeypatch.setattr("spark_rl.sandbox.detect.find_isolation", refuse)
    assert code_isolation() == CodeIsolation(None, "bubblewrap: bwrap is not installed; landlock: no")
    monkeypatch.undo()
    found = code_isolation()
    assert found.method is None or (found.method in METHODS and found.says)


def test_memory_below_the_smallest_run_is_a_warning() -> None:
    assert check(replace(SPARK, reading=at(1.0, 1.0)), "memory").status == "warning"
