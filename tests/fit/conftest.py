"""Shared by the tests of fit: machines, recipes and the public memory cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_rl.fit.scoring import read_cards, read_rows
from spark_rl.modelcard import ModelCard
from spark_rl.recipe import BASE_FILE, Recipe, resolve

MakeRecipe = Callable[..., Recipe]


@pytest.fixture(scope="session")
def make_recipe() -> MakeRecipe:
    """A recipe from the base values and `section.key=value` settings."""

    def make(*sets: str) -> Recipe:
        return resolve(str(BASE_FILE), sets=["model.max_seq_length=1536", *sets])

    return make


@pytest.fixture(scope="session")
def case_rows(cases_dir: Path) -> list[dict[str, Any]]:
    return read_rows(cases_dir / "memory" / "memory_cases.jsonl")


@pytest.fixture(scope="session")
def case_cards(cases_dir: Path) -> Mapping[str, ModelCard]:
    return read_cards(cases_dir / "memory" / "model_configs.jsonl")
