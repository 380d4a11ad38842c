"""A run's telemetry in four lines."""

from __future__ import annotations

import json
from pathlib import Path

from spark_rl.telemetry.summary import summary_of_run

from .conftest import healthy_gb10


def test_what_was_measured_is_told_and_a_torn_tail_is_passed_over(tmp_path: Path) -> None:
    rows = [
        {
            **healthy_gb10(float(s), power_watts=50.0).to_row(),
            "bandwidth": {"bytes_per_second": 185e9, "source": "derived"},
        }
        for s in range(0, 101, 2)
    ]
    path = tmp_path / "telemetry.jsonl"
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows) + b"\0\0\0\n{")
    start = rows[0]["t"]
    metrics = [{"t": start, "step": 1}, {"t": start + 100, "step": 2, "rollout/num_tokens": 4100}]
    assert summary_of_run(path, metrics) == [
        ("Lowest headroom", "40.00 GiB (MemAvailable)"),
        ("Hottest", "68 °C, 27 below slowdown"),
        ("Memory bandwidth", "185.0 GB/s, derived"),
        ("Energy of training", "4.1 kJ counted, 4100 J a step, 1000 J per 1,000 completion tokens"),
    ]


def test_a_run_without_telemetry_has_no_lines(tmp_path: Path) -> None:
    assert summary_of_run(tmp_path / "none.jsonl", []) == []
