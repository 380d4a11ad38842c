"""Engines: what loads a model, samples from it and trains it. `build_engine` picks one; only the worker calls it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_rl.engines.base import Engine
from spark_rl.errors import ConfigError
from spark_rl.recipe import Recipe


def build_engine(recipe: Recipe, chat_template_kwargs: Mapping[str, Any]) -> Engine:
    """The engine that the recipe names, not loaded yet. Importing its module loads the heavy packages."""
    name = recipe.engine.name
    if name == "unsloth":
        from spark_rl.engines.unsloth_engine import UnslothEngine

        return UnslothEngine(recipe, chat_template_kwargs)
    if name == "plain":
        from spark_rl.engines.plain_engine import PlainEngine

        return PlainEngine(recipe, chat_template_kwargs)
    if name == "fake":
        from spark_rl.engines.fake_engine import FakeEngine

        return FakeEngine(recipe, chat_template_kwargs)
    raise ConfigError(f"unknown engine {name!r}")
