"""What a diagnosis says: findings with their evidence, and how they are written as JSON and as text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["fault", "warning", "info", "good"]
"""fault: the run is broken or learns nothing; warning: look at it; info: explains a number; good: as hoped."""

ORDER: tuple[Severity, ...] = ("fault", "warning", "good", "info")

MAX_EVIDENCE = 6
"""Rows kept with a finding: enough to look them up, few enough to read."""


@dataclass(frozen=True)
class Evidence:
    """One logged number that a finding rests on."""

    step: int
    key: str
    value: float | None
    """None: NaN or infinite."""

    def to_json(self) -> dict[str, Any]:
        return {"step": self.step, "key": self.key, "value": self.value}

    def to_text(self) -> str:
        shown = "not a number" if self.value is None else f"{self.value:.4g}"
        return f"step {self.step}: {self.key} {shown}"


@dataclass(frozen=True)
class Finding:
    """One symptom, or its absence where people ask for it."""

    id: str
    """Stable name for programs: dead_reward_part, kl_spike, ..."""
    severity: Severity
    title: str
    words: str
    """What was seen, with numbers."""
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[str, ...] = ()
    """What to do, the most likely remedy first."""
    subject: str | None = None
    """The reward part or metric it is about, where there are several."""
    numbers: tuple[tuple[str, float | int | None], ...] = ()
    """Named quantities for programs: ("floor", 37)."""

    def number(self, name: str) -> float | int | None:
        return dict(self.numbers).get(name)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "severity": self.severity,
            "title": self.title,
            "words": self.words,
            "subject": self.subject,
            "numbers": dict(self.numbers),
            "evidence": [row.to_json() for row in self.evidence],
            "advice": list(self.advice),
        }


@dataclass(frozen=True)
class VariantAdvice:
    """What the evidence says about one variant of GRPO."""

    variant: Literal["dapo", "dr_grpo", "gspo"]
    advised: bool
    words: str
    """The evidence, or what is missing."""
    because: tuple[str, ...] = ()
    """Ids of the findings it rests on."""
    settings: tuple[str, ...] = ()
    """What to pass to --set where it is advised."""
    precondition: str | None = None
    """What must hold for the settings to change anything, where this run does not meet it or the log does not tell."""

    @property
    def options(self) -> str:
        """The settings as they are typed."""
        return " ".join(f"--set {setting}" for setting in self.settings)

    def to_json(self) -> dict[str, Any]:
        return {
            "variant": self.variant,
            "advised": self.advised,
            "words": self.words,
            "because": list(self.because),
            "set": list(self.settings),
            "precondition": self.precondition,
        }


@dataclass(frozen=True)
class Diagnosis:
    """Everything that was found in one log."""

    headline: str
    findings: tuple[Finding, ...]
    """Worst first."""
    variants: tuple[VariantAdvice, ...]
    num_rows: int
    first_step: int | None
    last_step: int | None
    notes: tuple[str, ...] = ()
    """About the log itself: lines skipped, steps written twice."""

    def find(self, finding_id: str) -> Finding | None:
        """The first finding of that kind."""
        return next((finding for finding in self.findings if finding.id == finding_id), None)

    def find_all(self, finding_id: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.id == finding_id]

    def to_json(self) -> dict[str, Any]:
        return {
            "headline": self.headline,
            "rows": self.num_rows,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "findings": [finding.to_json() for finding in self.findings],
            "variants": [variant.to_json() for variant in self.variants],
            "notes": list(self.notes),
        }

    def to_text(self, width: int = 100) -> str:
        """For a terminal: the headline, then each finding with its evidence and advice."""
        lines = [self.headline]
        for finding in self.findings:
            lines += ["", f"[{finding.severity}] {finding.title}", *_wrap(finding.words, width, "  ")]
            if finding.evidence:
                lines += _wrap("evidence: " + "; ".join(row.to_text() for row in finding.evidence), width, "  ")
            for number, advice in enumerate(finding.advice, start=1):
                lines += _wrap(f"{number}. {advice}", width, "  ", "     ")
        advised = [variant for variant in self.variants if variant.advised]
        if advised:
            lines += ["", "Variants the evidence speaks for:"]
            for variant in advised:
                lines += _wrap(f"{variant.variant}: {variant.words}", width, "  ")
                if variant.precondition:
                    lines += _wrap(f"precondition: {variant.precondition}", width, "    ")
                lines += [f"    {variant.options}"]  # never wrapped: it is copied
        if self.notes:
            lines += ["", *self.notes]
        return "\n".join(lines)


def worst_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """In order of severity; findings of one severity keep their order."""
    return tuple(sorted(findings, key=lambda finding: ORDER.index(finding.severity)))


def _wrap(text: str, width: int, indent: str, later: str | None = None) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=later or indent) or [indent]
