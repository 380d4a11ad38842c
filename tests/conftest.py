"""What every test may use."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# torch's compiler asks setuptools for its own distutils, which fails once a test has imported the standard one.
with contextlib.suppress(ImportError):
    import setuptools  # noqa: F401

# A busy machine is slow, not wrong: examples have no time limit, and slow generation is no failure.
settings.register_profile("spark_rl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("spark_rl")

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def cases_dir() -> Path:
    """The folder with other people's data; the test is skipped where it is absent."""
    folder = Path(os.environ.get("SPARK_RL_CASES") or PROJECT.parent / "shared" / "cases")
    if not folder.is_dir():
        pytest.skip(f"no cases at {folder}; SPARK_RL_CASES says where they are")
    return folder
