"""The fit report: phases, budget, verdict, remedies, forecast; as data and as text of a given width.

In: a recipe and a machine. Out: `FitReport`. The verdict compares the predicted peak with the budget: "does not fit" when
the peak itself is above it, "tight" when only the error band is, "fits" otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from spark_rl.fit.budget import Budget, budget_of
from spark_rl.fit.calibration import BAND_RECIPE, EXACT_LINES, Band
from spark_rl.fit.engine import EngineBudget, cache_capacity, judge_cache
from spark_rl.fit.forecast import BAND_HIGH, BAND_LOW, Forecast, forecast
from spark_rl.fit.from_recipe import workload_from_recipe
from spark_rl.fit.lines import Phase
from spark_rl.fit.phases import engine_terms, run_phases
from spark_rl.fit.workload import Workload
from spark_rl.host import Machine
from spark_rl.modelcard import ModelCard, find_card
from spark_rl.recipe import Recipe
from spark_rl.units import GIB, format_gib, format_seconds

Verdict = Literal["fits", "tight", "does_not_fit"]


@dataclass(frozen=True)
class Remedy:
    """One change, or a ladder of changes, that brings the run under the budget."""

    settings: tuple[str, ...]
    """What to pass to --set."""
    cost: str
    peak_bytes: float
    verdict: Verdict
    step_seconds: float


@dataclass(frozen=True)
class FitReport:
    """Everything `spark-rl fit` says about one recipe on one machine."""

    recipe_name: str
    machine: Machine
    work: Workload
    phases: tuple[Phase, ...]
    budget: Budget
    band: Band
    engine: EngineBudget | None
    engine_problem: str | None
    """Why the engine could not start or serve, or None."""
    concurrency: float | None
    forecast: Forecast
    remedies: tuple[Remedy, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=self.budget.need)

    @property
    def peak_bytes(self) -> float:
        return self.budget.need(self.peak)

    @property
    def headroom_bytes(self) -> float:
        return self.budget.device_bytes - self.peak_bytes

    @property
    def host_peak_bytes(self) -> float:
        return max(self.budget.host_need(phase) for phase in self.phases)

    @property
    def verdict(self) -> Verdict:
        if self.engine_problem is not None or self.peak_bytes > self.budget.device_bytes:
            return "does_not_fit"
        host = self.budget.host_bytes
        if host is not None and self.host_peak_bytes > host:
            return "does_not_fit"
        return "fits" if self.high_bytes <= self.budget.device_bytes else "tight"

    @property
    def band_bytes(self) -> tuple[float, float]:
        """Lowest and highest peak expected: the worst phase of each, since a phase of estimates is wider."""
        bands = [self._band_of(phase) for phase in self.phases]
        return max(low for low, _ in bands), max(high for _, high in bands)

    @property
    def high_bytes(self) -> float:
        return self.band_bytes[1]

    def _band_of(self, phase: Phase) -> tuple[float, float]:
        counted = [line for line in phase.lines if self.budget.counts(line)]
        exact = sum(line.num_bytes for line in counted if line.name in EXACT_LINES)
        return self.band.around(exact, sum(line.num_bytes for line in counted) - exact)

    @property
    def step_seconds(self) -> float:
        return self.forecast.step_seconds

    def summary(self) -> str:
        """One line for logs."""
        words = {"fits": "fits", "tight": "is tight", "does_not_fit": "does not fit"}[self.verdict]
        return (
            f"{self.recipe_name} {words} on {self.machine.name}: peak {format_gib(self.peak_bytes)} of "
            f"{format_gib(self.budget.device_bytes)} GiB in {self.peak.name}; about {format_seconds(self.step_seconds)} a step"
        )

    def to_json(self) -> dict[str, Any]:
        return report_json(self)

    def to_text(self, width: int = 80, explain: bool = False) -> str:
        from spark_rl.fit.text import report_text

        return report_text(self, width, explain)


def fit_report(
    recipe: Recipe, machine: Machine, *, with_remedies: bool = True, card: ModelCard | None = None
) -> FitReport:
    """Whether this recipe fits this machine, phase by phase, and how long a step takes.

    Raises ConfigError (unknown model, no sensor) and Refused (vision model, combinations that cannot work).
    """
    card = card or find_card(recipe.model.id, recipe.model.revision)
    work = workload_from_recipe(recipe, machine, card)
    report = report_of(recipe, work, machine)
    if with_remedies and report.verdict == "does_not_fit":
        from spark_rl.fit.remedies import find_remedies

        report = replace(report, remedies=find_remedies(recipe, machine, card, report))
    return report


def report_of(recipe: Recipe, work: Workload, machine: Machine) -> FitReport:
    """The report of a workload, remedies left out."""
    budget = budget_of(
        machine, unified_floor_gib=recipe.guard.unified_shed_gib, host_floor_gib=recipe.guard.host_shed_gib
    )
    total = float(machine.device_total_bytes or 0)
    if recipe.memory.memory_cap_gib is not None:
        budget = replace(budget, device_bytes=min(budget.device_bytes, recipe.memory.memory_cap_gib * GIB))
    terms = engine_terms(work, total)
    concurrency, problem = None, None
    if terms is not None:
        length = work.engine.max_model_len or work.prompt_tokens + work.completion_tokens
        capacity = cache_capacity(
            work.card,
            max(0.0, terms.cache),
            length,
            element_bytes=work.engine.kv_element_bytes,
            batched_tokens=work.engine.max_batched_tokens or 4096,
        )
        concurrency = capacity.concurrency
        problem = judge_cache(terms.cache, capacity.concurrency, terms.sentence())
    return FitReport(
        recipe_name=recipe.name,
        machine=machine,
        work=work,
        phases=tuple(run_phases(work, total, machine.kind)),
        budget=budget,
        band=BAND_RECIPE,
        engine=terms,
        engine_problem=problem,
        concurrency=concurrency,
        forecast=forecast(
            work, machine, generation_batch=recipe.generation_batch_size, max_steps=recipe.grpo.max_steps
        ),
        notes=(*work.notes, *work.card.notes, *machine.notes, *_length_note(work, machine)),
    )


def _length_note(work: Workload, machine: Machine) -> tuple[str, ...]:
    """Memory peaks at the longest sample, which may come late in a run."""
    if machine.kind == "cpu":
        return ()
    return (
        f"planned for the longest prompt and a full completion ({work.tokens_per_row} tokens), not for the mean: one long "
        "sample late in a run is enough to run out; a first step on the longest prompts shows the peak at once",
    )


def report_json(report: FitReport) -> dict[str, Any]:
    """The report as plain values; bytes are integers, unknown is null."""
    low, high = report.band_bytes
    times = report.forecast
    return {
        "recipe": report.recipe_name,
        "machine": report.machine.name,
        "gpu_index": report.machine.gpu_index,
        "gpu_uuid": report.machine.gpu_uuid,
        "model": report.work.card.name,
        "model_source": report.work.card.source,
        "parameters": report.work.card.parameter_count,
        "verdict": report.verdict,
        "peak_phase": report.peak.name,
        "peak_bytes": round(report.peak_bytes),
        "peak_low_bytes": round(low),
        "peak_high_bytes": round(high),
        "budget_bytes": round(report.budget.device_bytes),
        "headroom_bytes": round(report.headroom_bytes),
        "one_pool": report.budget.one_pool,
        "budget": report.budget.sentence,
        "host_peak_bytes": None if report.budget.one_pool else round(report.host_peak_bytes),
        "host_budget_bytes": None if report.budget.host_bytes is None else round(report.budget.host_bytes),
        "engine_problem": report.engine_problem,
        "kv_concurrency": None if report.concurrency is None else round(report.concurrency, 2),
        "phases": [_phase_json(phase, report) for phase in report.phases],
        "remedies": [
            {
                "set": list(remedy.settings),
                "cost": remedy.cost,
                "peak_bytes": round(remedy.peak_bytes),
                "verdict": remedy.verdict,
                "step_seconds": round(remedy.step_seconds, 2),
            }
            for remedy in report.remedies
        ],
        "step_seconds": round(times.step_seconds, 3),
        "step_seconds_low": round(times.step_seconds * BAND_LOW, 3),
        "step_seconds_high": round(times.step_seconds * BAND_HIGH, 3),
        "step_parts_seconds": {name: round(value, 3) for name, value in times.parts.items()},
        "dominates": times.dominates,
        "decode_tokens_per_second": round(times.decode_tokens_per_second, 1),
        "run_hours": round(times.run_hours, 3),
        "notes": list(report.notes),
    }


def _phase_json(phase: Phase, report: FitReport) -> Mapping[str, Any]:
    return {
        "phase": phase.name,
        "note": phase.note,
        "bytes": round(report.budget.need(phase)),
        "lines": [
            {
                "name": line.name,
                "bytes": round(line.num_bytes),
                "pool": line.pool,
                "formula": line.formula,
                "note": line.note,
                "unit": "B",
            }
            for line in phase.lines
        ],
    }
