"""One sandbox for all tests that only need some sandbox; the isolation tests make their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_rl.sandbox import Limits, Sandbox

QUICK = Limits(time_seconds=3.0, cpu_seconds=3)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(QUICK, num_pairs=2) as made:
        yield made
