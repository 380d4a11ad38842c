"""What an inspection is about, as a run's files and the task's files are now.

In: a run directory, or what was read of it. Out: a `Subject`: recipe, task, data, model folder. Reads files; loads no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from spark_rl.dataset import Examples, load_examples
from spark_rl.errors import RunDirError
from spark_rl.models import model_folder
from spark_rl.recipe import Recipe, recipe_from_json
from spark_rl.rundir import RunDir, read_json
from spark_rl.task import Task, load_task


@dataclass(frozen=True)
class Subject:
    """What is trained on what: a sign-off is for exactly this."""

    recipe: Recipe
    task: Task
    examples: Examples
    """As `load_examples` returns them: fingerprints are taken before any length policy, which needs a tokenizer."""
    model_dir: Path | None
    """None: a hub model that is not on this machine, known by the recipe's id and revision alone."""


def subject_of(recipe: Recipe, task: Task, examples: Examples) -> Subject:
    """The subject with the model's folder as it is on this machine."""
    return Subject(recipe, task, examples, model_folder(recipe.model.id, recipe.model.revision))


def read_subject(run: RunDir) -> Subject:
    """Raises RunDirError for a run without recipe or task, ConfigError for a task or data that cannot be read now."""
    task = read_task(run)
    return subject_of(read_recipe(run), task, load_examples(task))


def read_recipe(run: RunDir) -> Recipe:
    saved = read_json(run.recipe)
    if saved is None:
        raise RunDirError(f"{run.path}: has no recipe.json")
    try:
        return recipe_from_json(saved)
    except ValidationError as error:
        keys = ", ".join(
            f"{error.title}.{'.'.join(map(str, fault['loc']))} ({fault['type']})" for fault in error.errors()
        )
        raise RunDirError(f"{run.recipe}: not a recipe of this version: {keys}", "make a new run") from None
    except (KeyError, TypeError) as error:
        raise RunDirError(f"{run.recipe}: not a recipe: {type(error).__name__}: {error}", "make a new run") from None


def read_task(run: RunDir) -> Task:
    saved = read_json(run.task)
    if saved is None or not isinstance(saved.get("path"), str):
        raise RunDirError(f"{run.path}: does not say which task it is about (task.json)")
    return load_task(Path(saved["path"]))
