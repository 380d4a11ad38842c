"""All checks over one environment, and the verdict: ready, ready-with-warnings, blocked. Pure.

Each check says what was found (evidence) and what to do (fix). Status: ok, info, warning, blocked, unknown, not applicable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from spark_rl.doctor.environment import Environment

Status = Literal["ok", "info", "warning", "blocked", "unknown", "not applicable"]
Verdict = Literal["ready", "ready-with-warnings", "blocked"]


@dataclass(frozen=True)
class Check:
    id: str
    """"G1" ... "G10", or a word."""
    title: str
    status: Status
    evidence: str
    fix: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "title": self.title, "status": self.status, "evidence": self.evidence, "fix": self.fix or None,
            "figures": dict(self.figures),
        }  # fmt: skip


@dataclass(frozen=True)
class Report:
    checks: tuple[Check, ...]
    environment: Environment

    @property
    def verdict(self) -> Verdict:
        statuses = {check.status for check in self.checks}
        return "blocked" if "blocked" in statuses else "ready-with-warnings" if "warning" in statuses else "ready"

    def to_json(self) -> dict[str, Any]:
        """env-report.json."""
        environment = self.environment
        return {
            "v": 1,
            "verdict": self.verdict,
            "checks": [check.to_json() for check in self.checks],
            "machine": {
                "system": environment.system, "architecture": environment.architecture, "kernel": environment.kernel,
                "python": ".".join(map(str, environment.python)), "container": environment.container, "wsl": environment.is_wsl,
                "product_name": environment.product_name, "dgx_os": environment.dgx_os,
                "driver_version": environment.driver_version, "driver_cuda": environment.driver_cuda,
                "torch_cuda": environment.torch_cuda, "packages": None if environment.packages is None else dict(environment.packages),
                "gpus": [
                    {"index": gpu.index, "name": gpu.name, "compute_capability": gpu.compute_capability, "unified": gpu.unified, "memory_total_bytes": gpu.memory_total_bytes}
                    for gpu in environment.gpus
                ],
                "bench": environment.bench,
            },
            "reading": None if environment.reading is None else environment.reading.to_row(),
        }  # fmt: skip

    def to_text(self, width: int = 80) -> str:
        """For people: problems first, then what is well, then what does not apply."""
        order: tuple[Status, ...] = ("blocked", "warning", "info", "unknown", "ok", "not applicable")
        marks = {
            "ok": "ok",
            "info": "note",
            "warning": "WARN",
            "blocked": "BLOCK",
            "unknown": "?",
            "not applicable": "-",
        }
        lines = []
        for check in sorted(self.checks, key=lambda check: order.index(check.status)):
            lines += _wrapped(f"{marks[check.status]:<6}{check.id:<10}{check.title}: {check.evidence}", width, 16)
            if check.fix and check.status in ("blocked", "warning", "info"):
                lines += _wrapped(f"{'':16}-> {check.fix}", width, 19)
        counts = {status: sum(check.status == status for check in self.checks) for status in ("blocked", "warning")}
        lines.append(
            f"verdict: {self.verdict} ({counts['blocked']} blocking, {counts['warning']} warnings, {len(self.checks)} checks)"
        )
        return "\n".join(lines)


CheckFunction = Callable[[Environment], Check]


def examine(environment: Environment) -> Report:
    """Every check over this environment."""
    from spark_rl.doctor.general import GENERAL_CHECKS
    from spark_rl.doctor.spark import SPARK_CHECKS

    return Report(tuple(check(environment) for check in (*GENERAL_CHECKS, *SPARK_CHECKS)), environment)


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    import textwrap

    return textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    ) or [""]
