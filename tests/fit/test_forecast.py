"""Time: which part dominates, how it grows, and the public decode measurements of a DGX Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark_rl.fit import fit_report
from spark_rl.fit.forecast import decode_bytes_per_step, decode_step_seconds
from spark_rl.fit.measured import bench_file, with_measured_speed
from spark_rl.host import machine_class
from spark_rl.modelcard import find_card
from tests.fit.conftest import MakeRecipe

SPARK = machine_class("dgx-spark")
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "score_forecast"


def test_public_decode_rows_are_within_15_percent_at_the_median() -> None:
    lines = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = json.loads(lines[-1])
    assert found["n"] >= 15
    assert found["median_abs_pct"] <= 15


def test_dense_decoding_scales_almost_with_the_batch() -> None:
    card = find_card("Qwen/Qwen3-8B")
    one = 1 / decode_step_seconds(card, SPARK, 1, 500)
    ten = 10 / decode_step_seconds(card, SPARK, 10, 500)
    assert 8 < ten / one <= 10


def test_experts_touched_by_a_batch_make_it_scale_less() -> None:
    card = find_card("Qwen/Qwen3-30B-A3B")
    one = 1 / decode_step_seconds(card, SPARK, 1, 500)
    ten = 10 / decode_step_seconds(card, SPARK, 10, 500)
    assert 1.5 < ten / one < 4


def test_a_batch_of_everything_reads_every_weight() -> None:
    card = find_card("Qwen/Qwen3-30B-A3B")
    read = decode_bytes_per_step(card, 10_000, plain_bytes=2)
    assert read == pytest.approx(2 * (card.parameter_count - card.embedding_count), rel=0.001)


def test_eager_mode_is_slower() -> None:
    card = find_card("Qwen/Qwen2.5-1.5B-Instruct")
    assert decode_step_seconds(card, SPARK, 1, 100, eager=True) > 1.5 * decode_step_seconds(card, SPARK, 1, 100)


def test_native_sampling_is_slower_than_an_engine_on_a_card(make_recipe: MakeRecipe) -> None:
    card = machine_class("48")
    engine = fit_report(make_recipe(), card).forecast.decode_seconds
    native = fit_report(make_recipe("rollout.kind=native"), card).forecast.decode_seconds
    assert native > 2 * engine


def test_the_parts_add_up_and_one_dominates(make_recipe: MakeRecipe) -> None:
    times = fit_report(make_recipe(), SPARK).forecast
    assert times.step_seconds == pytest.approx(sum(times.parts.values()))
    assert times.parts[times.dominates] == max(times.parts.values())
    assert times.run_hours == pytest.approx(times.step_seconds * 250 / 3600)


def test_offloaded_state_costs_traffic_on_a_discrete_card_only(make_recipe: MakeRecipe) -> None:
    offload = "memory.offload_optimizer_state=true"
    assert fit_report(make_recipe(offload), machine_class("24")).forecast.offload_seconds > 0
    assert fit_report(make_recipe(offload), SPARK).forecast.offload_seconds == 0


def test_the_embedded_demo_takes_seconds_not_minutes_on_a_cpu() -> None:
    from spark_rl.recipe import resolve

    report = fit_report(resolve("cpu-tiny"), machine_class("cpu"))
    assert 0.05 < report.step_seconds < 2


def test_a_bench_of_this_device_replaces_the_table() -> None:
    bench = {"device": "NVIDIA GB10", "device_read_bytes_per_second": 161e9, "matmul_flops": 36e12}
    slow = with_measured_speed(SPARK, bench)
    card = find_card("Qwen/Qwen3-8B")
    assert decode_step_seconds(card, slow, 1, 100) > 1.3 * decode_step_seconds(card, SPARK, 1, 100)
    assert "bench" in slow.source


def test_a_bench_of_another_device_is_not_used() -> None:
    bench = {"device": "cpu", "device_read_bytes_per_second": 10e9, "matmul_flops": 1e11}
    assert with_measured_speed(SPARK, bench) == SPARK


def test_a_bench_that_could_not_measure_changes_nothing() -> None:
    assert with_measured_speed(SPARK, {"device": "NVIDIA GB10", "device_read_bytes_per_second": None}) == SPARK


def test_the_bench_s_file_is_where_bench_keeps_it() -> None:
    from spark_rl.bench import result_file

    assert bench_file() == result_file()
