"""What every test may use."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# torch's compiler asks setuptools for its own distutils, which fails once a test has imported the standard one.
with contextlib.suppress(ImportError):
    import setuptools  # noqa: F401

# A busy machine is slow, not wrong: examples have no time limit, and slow generation is no failure.
settings.register_profile("spark_rl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("spark_rl")

PROJECT = Path(__file__).resolve().parents[1]

HEAVY = re.compile(r"pytest\.mark\.(train|vllm)\b")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n 2`: one process takes the files with tests that train, one after the other, the other one all the rest. Two
    that train at once would take five times as long each."""
    from xdist.scheduler import LoadScopeScheduling

    @functools.cache
    def is_heavy(file: str) -> bool:
        return HEAVY.search((config.rootpath / file).read_text(encoding="utf-8")) is not None

    class HeavyInARow(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return "heavy" if is_heavy(file) else file

    return HeavyInARow(config, log)


@pytest.fixture(scope="session")
def cases_dir() -> Path:
    """The folder with other people's data; the test is skipped where it is absent."""
    folder = Path(os.environ.get("SPARK_RL_CASES") or PROJECT.parent / "shared" / "cases")
    if not folder.is_dir():
        pytest.skip(f"no cases at {folder}; SPARK_RL_CASES says where they are")
    return folder
