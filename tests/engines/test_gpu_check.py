"""scripts/gpu_check on a machine without a GPU: runs what can run, and says of everything else why it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark_rl.host import detect_host

pytestmark = [pytest.mark.train, pytest.mark.slow]

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_check"


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    if detect_host().kind != "cpu":
        pytest.skip("this machine has a GPU: run scripts/gpu_check itself")
    out = tmp_path_factory.mktemp("gpu_check") / "out.json"
    done = subprocess.run([sys.executable, str(SCRIPT), "--out", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return {check["name"]: check for check in json.loads(out.read_text())["checks"]}


def test_native_rollouts_really_run(checks) -> None:
    assert {name: check["status"] for name, check in checks.items() if name.startswith("route c")} == {
        "route c: native, unsloth": "ok",
        "route c: native, plain": "ok",
    }


def test_every_skipped_check_says_why(checks) -> None:
    skipped = [check for check in checks.values() if check["status"] == "skipped"]
    assert len(skipped) >= 10 and all(check["words"] for check in skipped)


def test_nothing_failed(checks) -> None:
    assert [name for name, check in checks.items() if check["status"] == "failed"] == []
