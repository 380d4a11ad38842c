"""How fast this machine really is: memory bandwidth, matrix rate, disk; and what that says against its class.

`run_bench()` measures and keeps the result where fit's forecast and doctor find it; `read_result()` reads the last one.
The GPU is measured in a process of its own (`bench.gpu_probe`), so that nothing here imports torch.
"""

from spark_rl.bench.measure import BenchResult, judge, read_result, result_file, run_bench

__all__ = ["BenchResult", "judge", "read_result", "result_file", "run_bench"]
