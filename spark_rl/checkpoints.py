"""Checkpoint folders of a run: which of them were written to their end."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

COMPLETE_MARK = "complete"
"""Empty file written last into a checkpoint folder: a folder without it was cut off and is never resumed from."""


def latest_checkpoint(checkpoints: Path) -> Path | None:
    """The newest complete checkpoint-N folder; None when there is none."""
    complete = {path: step for path, step in _numbered(checkpoints).items() if (path / COMPLETE_MARK).is_file()}
    return max(complete, key=complete.__getitem__, default=None)


def remove_torn(checkpoints: Path) -> list[str]:
    """Remove checkpoint-N folders that were cut off; returns their names. Transformers counts each as one of those it keeps,
    and would delete the last complete one in its place before the next is written to its end."""
    torn = [path for path in _numbered(checkpoints) if not (path / COMPLETE_MARK).is_file()]
    for path in torn:
        shutil.rmtree(path, ignore_errors=True)
    return sorted(path.name for path in torn)


def _numbered(checkpoints: Path) -> dict[Path, int]:
    """Folder -> step. A copy under another name is not one of the run's."""
    named = {path: re.fullmatch(r"checkpoint-([0-9]+)", path.name) for path in checkpoints.glob("checkpoint-*")}
    return {path: int(name[1]) for path, name in named.items() if name}
