"""Real engines on the embedded model. Each engine runs in a process of its own: unsloth must be imported first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

DRIVER = Path(__file__).with_name("drive_engine.py")


def drive(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Carry out a job in a fresh interpreter and return what it found (see drive_engine.py)."""
    result = folder / "result.json"
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    done = subprocess.run(
        [sys.executable, str(DRIVER), json.dumps({**job, "folder": str(folder), "result": str(result)})],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(result.read_text())
