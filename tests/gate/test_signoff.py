"""Nothing skips the gate, and whatever is refused is named."""

from __future__ import annotations

from .conftest import Bench


def test_a_signed_run_may_be_trained(bench: Bench) -> None:
    run = bench.signed_run()
    assert bench.require(run).kind == "person"
