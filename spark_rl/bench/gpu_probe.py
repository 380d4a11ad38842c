"""`python -m spark_rl.bench.gpu_probe`: one JSON line with what the GPU reads, copies and multiplies per second.

Reading is a reduction over an array far larger than any cache; the matrix rate is bf16 with fp32 accumulation.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

MATRIX_SIZE = 8192
MAX_ARRAY_BYTES = 4 * 1024**3
REPEATS = 10


def best_seconds(torch: Any, work: Callable[[], Any]) -> float:
    """The fastest of several runs, each waited for."""
    work()
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return best


def probe() -> dict[str, Any]:
    """Raises RuntimeError when torch sees no GPU."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no CUDA device")
    free, _ = torch.cuda.mem_get_info()
    num_values = min(MAX_ARRAY_BYTES, max(64 * 1024**2, free // 8)) // 4
    source = torch.ones(num_values, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    size = num_values * 4
    read = size / best_seconds(torch, source.sum)
    copy = 2 * size / best_seconds(torch, lambda: target.copy_(source))
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    left = torch.randn(MATRIX_SIZE, MATRIX_SIZE, device="cuda", dtype=dtype)
    matmul = 2 * MATRIX_SIZE**3 / best_seconds(torch, lambda: left @ left)
    return {
        "device": torch.cuda.get_device_name(0),
        "device_read_bytes_per_second": read,
        "device_copy_bytes_per_second": copy,
        "matmul_flops": matmul,
        "matmul_dtype": str(dtype).removeprefix("torch."),
    }


def main() -> int:
    try:
        print(json.dumps(probe()))
    except (ImportError, RuntimeError) as error:
        print(json.dumps({"error": str(error).splitlines()[0]}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
