"""Checkpoint folders of a run: which of them were written to their end."""

from __future__ import annotations

import re
from pathlib import Path

COMPLETE_MARK = "complete"
"""Empty file written last into a checkpoint folder: a folder without it was cut off and is never resumed from."""


def latest_checkpoint(checkpoints: Path) -> Path | None:
    """The newest complete checkpoint-N folder; None when there is none. A copy under another name is not one of the run's."""
    numbered = {path: re.fullmatch(r"checkpoint-([0-9]+)", path.name) for path in checkpoints.glob("checkpoint-*")}
    complete = {path: int(name[1]) for path, name in numbered.items() if name and (path / COMPLETE_MARK).is_file()}
    return max(complete, key=complete.__getitem__, default=None)
