"""A small proof of the sandbox for processes that are not pytest's: other users, and containers.

Prints one JSON object: the method in force, why the better ones are not, and what came of a few samples.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from spark_rl.errors import Refused
from spark_rl.sandbox import Limits, Sandbox, TestJob
from spark_rl.sandbox.battery import counts, read_program, run_battery

HOSTILE = Path(__file__).parent / "hostile"
# One of each kind: processes, memory, files, network, exits, verdict.
CHOSEN = (
    "always_equal", "become_root", "device_nodes", "disk_filler", "double_fork", "fork_bomb", "forge_protocol", "limits_of_others",
    "memory_bomb", "network_unix_sockets", "os_exit_zero", "read_environment", "read_etc", "read_home", "read_proc", "signal_everyone",
    "state_for_next_sample", "truncate_by_reading", "write_outside",
)  # fmt: skip
TESTS = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 9\n"


def main() -> int:
    try:
        with Sandbox(Limits(time_seconds=5.0), num_pairs=1) as sandbox:
            right = sandbox.check(TestJob(["def square(n):\n    return n * n\n"], TESTS, entry_point="square"))
            wrong = sandbox.check(TestJob(["def square(n):\n    return n + n\n"], TESTS, entry_point="square"))
            facts = {"method": sandbox.isolation.method, "tried": [asdict(one) for one in sandbox.isolation.tried]}
    except Refused as error:
        print(json.dumps({"method": None, "reason": error.message}))
        return 0
    findings = run_battery([read_program(HOSTILE / f"{name}.py") for name in CHOSEN])
    harmful = [str(finding) for finding in findings if not finding.harmless]
    print(json.dumps({**facts, "right": right.passed, "wrong": wrong.passed, **counts(findings), "harmful": harmful}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
