"""Runs one reasoning-gym scorer, inside a helper process.

In: {"entry", "said"}. Out: {"score", "junk", "has_gold"}; `junk` is what the scorer gives to text that answers nothing.
"""

from __future__ import annotations

import math
from typing import Any

JUNK = ("banana", "not an answer")
_SCORER: dict[str, Any] = {}
"""The scorer of this process's data set; set once by `prepare`."""


def prepare(setup: dict[str, Any]) -> None:
    """Import the package and find the scorer. Raises ValueError naming the data set when there is none."""
    from reasoning_gym.factory import DATASETS, get_score_answer_fn

    name = setup["dataset"]
    if name not in DATASETS:
        from spark_rl.errors import did_you_mean

        raise ValueError(f"reasoning-gym has no task {name!r}; {did_you_mean(name, DATASETS) or 'see its list'}")
    _SCORER["score"] = get_score_answer_fn(name)


def handle(payload: dict[str, Any]) -> dict[str, Any]:
    """The score of the stated answer, and of junk for the same entry."""
    score, entry = _SCORER["score"], payload["entry"]
    said = payload["said"] or None
    value = float(score(said, entry)) if said else 0.0
    if not math.isfinite(value):
        raise ValueError(f"the scorer returned {value}")
    return {"score": value, "junk": max(_junk(score, entry, text) for text in JUNK), "has_gold": bool(entry["answer"])}


def _junk(score: Any, entry: dict[str, Any], text: str) -> float:
    if str(entry["answer"]).strip().casefold() == text:
        return 0.0
    try:
        return float(score(text, entry))
    except Exception:  # noqa: BLE001  worker boundary: a scorer that raises on junk gives it nothing
        return 0.0
