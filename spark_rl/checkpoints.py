"""Checkpoint folders of a run: which of them were written to their end."""

from __future__ import annotations

from pathlib import Path

COMPLETE_MARK = "complete"
"""Empty file written last into a checkpoint folder: a folder without it was cut off and is never resumed from."""


def latest_checkpoint(checkpoints: Path) -> Path | None:
    """The newest complete checkpoint-N folder; None when there is none."""
    complete = [path for path in checkpoints.glob("checkpoint-*") if (path / COMPLETE_MARK).is_file()]
    return max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
