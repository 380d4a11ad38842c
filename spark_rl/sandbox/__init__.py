"""Running untrusted code: isolation, limits, and a verdict that the code under test cannot write.

`Sandbox()` finds the best isolation that holds on this machine, or raises Refused. See docs/sandbox.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_rl.sandbox.detect import Isolation as Isolation
    from spark_rl.sandbox.detect import find_isolation as find_isolation
    from spark_rl.sandbox.jobs import Outcome as Outcome
    from spark_rl.sandbox.jobs import ProgramJob as ProgramJob
    from spark_rl.sandbox.jobs import TestJob as TestJob
    from spark_rl.sandbox.limits import Limits as Limits
    from spark_rl.sandbox.pool import Sandbox as Sandbox

_HOMES = {
    "Isolation": "detect",
    "find_isolation": "detect",
    "Outcome": "jobs",
    "ProgramJob": "jobs",
    "TestJob": "jobs",
    "Limits": "limits",
    "Sandbox": "pool",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
