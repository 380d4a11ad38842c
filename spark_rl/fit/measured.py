"""This host's own speed, where `spark-rl bench` has measured it, in place of the table's.

In: a machine that was detected here, and the kept result of the last bench. Out: the machine with measured speeds. Reads one
small file itself, because the bench's module brings numpy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_rl.host import Machine

READ_SHARE = 0.9
"""A plain read reaches about this much of the headline bandwidth that the forecast's efficiencies refer to."""
PRODUCT_SHARE = 0.8
"""A large matrix product reaches about this much of a discrete card's published rate."""


def bench_file() -> Path:
    """Where `spark-rl bench` keeps its last result."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "spark_rl" / "bench.json"


def last_bench(path: Path | None = None) -> dict[str, Any] | None:
    """The last result; None when there is none that can be read."""
    try:
        found = json.loads((path or bench_file()).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def with_measured_speed(machine: Machine, bench: Mapping[str, Any] | None) -> Machine:
    """The machine with measured bandwidth and matrix rate; unchanged when the result is of another device."""
    if bench is None:
        return machine
    device = str(bench.get("device") or "")
    if device != (machine.gpu_name or "cpu"):
        return machine
    read, product = bench.get("device_read_bytes_per_second"), bench.get("matmul_flops")
    changes: dict[str, Any] = {}
    if isinstance(read, (int, float)) and read > 0:
        changes["bandwidth_bytes_per_second"] = read / READ_SHARE
    if isinstance(product, (int, float)) and product > 0:
        changes["bf16_flops"] = product / (PRODUCT_SHARE if machine.kind == "discrete" else 1.0)
    if not changes:
        return machine
    return replace(machine, **changes, source=f"{machine.source}; speed as spark-rl bench measured it here")
