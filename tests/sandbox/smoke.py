"""A small proof of the sandbox for processes that are not pytest's: other users, and containers.

Prints one JSON object: the method in force, why the better ones are not, and what came of a few samples.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from spark_rl.errors import Refused
from spark_rl.sandbox import find_isolation
from spark_rl.sandbox.battery import counts, read_program, run_battery

HOSTILE = Path(__file__).parent / "hostile"
# One of each kind: processes, memory, files, network, exits, verdict.
CHOSEN = (
    "always_equal", "become_root", "device_nodes", "disk_filler", "double_fork", "fork_bomb", "forge_protocol", "limits_of_others",
    "memory_bomb", "network_unix_sockets", "os_exit_zero", "read_environment", "read_etc", "read_home", "read_proc", "signal_everyone",
    "state_for_next_sample", "truncate_by_reading", "write_outside",
)  # fmt: skip


def main() -> int:
    try:
        isolation = find_isolation()
    except Refused as error:
        print(json.dumps({"method": None, "reason": error.message}))
        return 0
    isolation.close()
    # The battery itself proves that an honest program is rewarded.
    findings = run_battery([read_program(HOSTILE / f"{name}.py") for name in CHOSEN], method=isolation.method)
    harmful = [str(finding) for finding in findings if not finding.harmless]
    tried = [asdict(one) for one in isolation.tried]
    print(json.dumps({"method": isolation.method, "tried": tried, "harmful": harmful, **counts(findings)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
