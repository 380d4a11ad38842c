"""Memory bandwidth of a run's rollouts, read from its metrics as they are written.

In: metrics.jsonl and what a decode step of this model must read. Out: the newest `Bandwidth`, and a notice when decoding
has read far less than the device sustains in three rollouts in a row (and when that is over).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_rl.rundir import read_jsonl
from spark_rl.telemetry.bandwidth import Bandwidth, judge_bandwidth
from spark_rl.telemetry.findings import Finding
from spark_rl.telemetry.watcher import Notice
from spark_rl.units import format_bytes

NUM_LOW = 3
"""Rollouts in a row below the band before it is said: the first compiles kernels and captures graphs."""


def bandwidth_of_rollout(row: Mapping[str, Any], weight_bytes: float, kv_bytes_per_token: float) -> Bandwidth | None:
    """Bytes that decoding must have read, over the seconds it took; a lower bound. None for a row without a rollout.

    Weights are read once a decode step; a sequence's cache at each of its tokens, growing from the prompt on.
    """
    names = ("seconds", "num_completions", "num_tokens", "num_decode_steps", "num_prompt_tokens")
    values = [row.get(f"rollout/{name}") for name in names]
    if any(isinstance(value, bool) or not isinstance(value, int | float) or value <= 0 for value in values):
        return None
    seconds, num_completions, num_tokens, num_steps, num_prompt_tokens = map(float, values)  # type: ignore[arg-type]
    mean_context = num_prompt_tokens / num_completions + num_tokens / num_completions / 2
    total = num_steps * weight_bytes + num_tokens * mean_context * kv_bytes_per_token
    note = f"{format_bytes(total)} in {num_steps:.0f} decode steps, {num_tokens / seconds:.0f} tokens/s"
    return Bandwidth(total / seconds, "derived", note)


class RolloutBandwidth:
    """Follows one run's metrics."""

    def __init__(
        self, metrics: Path, weight_bytes: float, kv_bytes_per_token: float, peak_bytes_per_second: float | None
    ) -> None:
        """`peak_bytes_per_second`: the device's headline; None = unknown or no GPU, then nothing is judged."""
        self._metrics = metrics
        self._weight_bytes = weight_bytes
        self._kv_bytes_per_token = kv_bytes_per_token
        self.peak_bytes_per_second = peak_bytes_per_second
        self._offset = 0
        self._low_in_a_row = 0
        self._standing: Finding | None = None
        self.newest: Bandwidth | None = None

    def look(self) -> tuple[Notice, ...]:
        """Reads what was written since the last look."""
        found = read_jsonl(self._metrics, self._offset)
        self._offset = found.offset
        notices: list[Notice] = []
        for row in found.rows:
            measured = bandwidth_of_rollout(row, self._weight_bytes, self._kv_bytes_per_token)
            if measured is None:
                continue
            self.newest = measured
            if self.peak_bytes_per_second is not None:
                notices += self._judge(
                    judge_bandwidth(measured, self.peak_bytes_per_second), float(row.get("t") or 0.0)
                )
        return tuple(notices)

    def _judge(self, finding: Finding | None, t: float) -> list[Notice]:
        self._low_in_a_row = 0 if finding is None else self._low_in_a_row + 1
        if finding is not None and self._standing is None and self._low_in_a_row >= NUM_LOW:
            self._standing = finding
            return [Notice("begin", t, finding)]
        if finding is None and self._standing is not None:
            ended, self._standing = self._standing, None
            return [Notice("end", t, ended)]
        return []
