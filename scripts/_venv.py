"""For the scripts beside it: run in the project's .venv, and find the tools that live there.

`import _venv` at the top of a script restarts the script under .venv's Python when that exists and is not running
already; without a .venv the script goes on with the Python it was started with.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")


def tool(name: str) -> str:
    """Path of a command from .venv or from PATH; ends the script with a sentence when there is none."""
    found = shutil.which(name, path=str(BIN)) or shutil.which(name)
    if found is None:
        sys.exit(f"error: {name} is not installed\nhint: scripts/setup --dev")
    return found


def _restart_in_venv() -> None:
    python = BIN / ("python.exe" if os.name == "nt" else "python")
    script = Path(sys.argv[0])
    if Path(sys.prefix) == VENV or not python.exists() or script.parent.resolve() != ROOT / "scripts":
        return
    os.execv(python, [str(python), *sys.argv])


_restart_in_venv()
