"""Engines: what loads a model, samples from it and trains it. `build_engine` picks one; only the worker calls it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from spark_rl.engines.base import Engine
from spark_rl.errors import ConfigError
from spark_rl.host import detect_host
from spark_rl.recipe import Recipe
from spark_rl.rollout.plan import plan_rollout


def build_engine(recipe: Recipe, chat_template_kwargs: Mapping[str, Any]) -> Engine:
    """The engine that the recipe names, not loaded yet. Importing its module loads the heavy packages, so the variables that
    they read at import are set here, just before. Raises Refused where the recipe cannot be carried out on this host."""
    name = recipe.engine.name
    plan = plan_rollout(recipe, detect_host())
    os.environ.update(plan.environment)
    if name == "unsloth":
        from spark_rl.engines.unsloth_engine import UnslothEngine

        return UnslothEngine(recipe, plan, chat_template_kwargs)
    if name == "plain":
        from spark_rl.engines.plain_engine import PlainEngine

        return PlainEngine(recipe, plan, chat_template_kwargs)
    if name == "fake":
        from spark_rl.engines.fake_engine import FakeEngine

        return FakeEngine(recipe, chat_template_kwargs)
    raise ConfigError(f"unknown engine {name!r}")
