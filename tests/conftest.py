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

HEAVY = ("slow", "train", "vllm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `-n 2`: one process takes all heavy tests, one after the other, the other one the light ones file by file. Two
    that train at once take five times as long each."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return

    def is_heavy(item: pytest.Item) -> bool:
        return any(item.get_closest_marker(name) for name in HEAVY)

    heavy, light = [item for item in items if is_heavy(item)], [item for item in items if not is_heavy(item)]
    for item in heavy:
        item.add_marker(pytest.mark.xdist_group("heavy"))
    for item in light:
        item.add_marker(pytest.mark.xdist_group(item.location[0]))
    items[:] = [*heavy, *light]  # the long row first


PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def cases_dir() -> Path:
    """The folder with other people's data; the test is skipped where it is absent."""
    folder = Path(os.environ.get("SPARK_RL_CASES") or PROJECT.parent / "shared" / "cases")
    if not folder.is_dir():
        pytest.skip(f"no cases at {folder}; SPARK_RL_CASES says where they are")
    return folder
