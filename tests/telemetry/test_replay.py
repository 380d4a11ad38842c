"""Recordings through the same code as live readings; bandwidth and energy from what was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_rl.cli import main
from spark_rl.errors import ConfigError
from spark_rl.guard import Guard, limits_for
from spark_rl.telemetry.bandwidth import (
    GB10_PEAK_BYTES_PER_SECOND,
    bytes_per_decode_step,
    derive_from_decoding,
    from_counter,
    judge_bandwidth,
)
from spark_rl.telemetry.energy import energy_between, energy_of_run
from spark_rl.telemetry.reading import Reading
from spark_rl.telemetry.replay import play, read_recording
from spark_rl.telemetry.rollout import RolloutBandwidth, bandwidth_of_rollout

from .conftest import at, healthy_gb10


def record(path: Path, readings: list[Reading], tail: bytes = b"") -> Path:
    path.write_bytes(b"".join(json.dumps(reading.to_row()).encode() + b"\n" for reading in readings) + tail)
    return path


def collapse() -> list[Reading]:
    """Field report 22: 34.0 to 12.7 GiB in 1.5 s, every 0.5 s."""
    return [at(second * 0.5, 34.0) for second in range(20)] + [at(10.0 + i * 0.5, 34.0 - 7.1 * i) for i in range(1, 4)]


def test_a_nul_filled_last_record_is_skipped_and_counted(tmp_path: Path) -> None:
    recording = read_recording(record(tmp_path / "t.jsonl", collapse(), b"\0" * 300 + b'\n{"v": 1, "t": 17'))
    assert len(recording.readings) == 23
    assert recording.num_skipped == 2


def test_the_recorded_collapse_is_acted_on_before_the_floor(tmp_path: Path) -> None:
    recording = read_recording(record(tmp_path / "t.jsonl", collapse()))
    guard = Guard(limits_for(True, None))
    actions = [action for reading in recording.readings for action in guard.observe(reading)]
    assert actions
    assert actions[0].before["headroom_gib"] > 8


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "holds no readings"), ("not json\n", "holds no readings"), ('{"v": 99, "t": 1}\n', "newer spark_rl")],
)
def test_a_recording_that_cannot_be_used_is_refused_with_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_recording(path)


def test_a_missing_recording_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "--replay", str(tmp_path / "no.jsonl")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_time_is_scaled(tmp_path: Path) -> None:
    recording = read_recording(record(tmp_path / "t.jsonl", [at(float(second), 40) for second in range(11)]))
    waited: list[float] = []
    assert len(list(play(recording, 10.0, clock=lambda: sum(waited), sleep=waited.append))) == 11
    assert sum(waited) == pytest.approx(1.0)


def test_a_recording_with_other_keys_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"t": 5, "host": {"mem_available_bytes": 123, "new_sensor": 4}, "gpus": [{"name": "NVIDIA GB10", "unified": true}]}\n'
    )
    reading = read_recording(path).readings[0]
    assert reading.headroom_bytes == 123
    assert reading.reason("gpus.0.power_watts") == "the recording does not hold it"


def test_monitor_prints_rows_and_findings_of_a_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stuck = [
        healthy_gb10(float(s), sm_clock_mhz=799.0 + s % 7, power_watts=19.5 + s % 3, temperature_c=48.0)
        for s in range(0, 80, 2)
    ]
    path = record(tmp_path / "t.jsonl", stuck)
    assert main(["monitor", "--replay", str(path), "--speed", "0", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["rule"] for row in rows if "rule" in row] == ["stuck_low"]
    assert sum("host" in row for row in rows) == 40


def test_monitor_once_works_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "--once"]) == 0
    assert "can be had (MemAvailable)" in capsys.readouterr().out


def test_monitor_refuses_an_interval_that_means_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "--interval", "0.1"]) == 2
    assert "at least 0.5" in capsys.readouterr().err


def test_a_replayed_gb10_shows_na_and_never_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"t": 1, "gpus": [{"index": 0, "name": "NVIDIA GB10", "unified": True, "power_watts": 11.17, "temperature_c": 35}]}) + "\n")  # fmt: skip
    assert main(["monitor", "--replay", str(path), "--once"]) == 0
    shown = capsys.readouterr().out
    assert "busy N/A" in shown
    assert "memory N/A used of N/A" in shown


def test_bandwidth_of_a_27b_model_in_bf16_is_derived_from_its_tokens() -> None:
    """54 GB at 4.54 tokens/s: 245 GB/s, 90 % of the peak."""
    derived = derive_from_decoding(54e9, 0, 0, 1, 4.54)
    assert derived is not None
    assert derived.source == "derived"
    assert derived.bytes_per_second == pytest.approx(245e9, rel=0.01)
    assert judge_bandwidth(derived, GB10_PEAK_BYTES_PER_SECOND) is None


def test_a_batch_reads_the_weights_once_and_every_cache() -> None:
    assert bytes_per_decode_step(10.0, 2.0, 100.0, 8) == 10 + 8 * 200
    derived = derive_from_decoding(10.0, 2.0, 100.0, 8, tokens_per_second=16.0)
    assert derived is not None
    assert derived.bytes_per_second == (10 + 1600) * 2


def test_the_hidden_slow_mode_is_seen_by_its_bandwidth() -> None:
    """GEMV 3.3 times slower with normal-looking sensors."""
    derived = derive_from_decoding(54e9, 0, 0, 1, 4.54 / 3.3)
    assert derived is not None
    found = judge_bandwidth(derived, GB10_PEAK_BYTES_PER_SECOND)
    assert found is not None
    assert found.rule == "bandwidth_low"
    assert "derived" in found.summary


def test_nothing_decoded_means_no_bandwidth() -> None:
    assert derive_from_decoding(54e9, 0, 0, 1, 0.0) is None
    assert derive_from_decoding(54e9, 0, 0, 0, 5.0) is None


def test_a_discrete_card_has_a_counter_and_gb10_has_none() -> None:
    counted = from_counter(61.0, 1008e9)
    assert counted is not None
    assert (counted.source, counted.bytes_per_second) == ("counted", pytest.approx(615e9, rel=0.01))
    assert from_counter(None, 273e9) is None


def rollout(seconds: float) -> dict[str, float]:
    """64 completions of up to 100 tokens from a 3 GB model."""
    return {
        "t": 1.0, "rollout/seconds": seconds, "rollout/num_completions": 64, "rollout/num_tokens": 5000, "rollout/num_decode_steps": 100,
        "rollout/num_prompt_tokens": 6400,
    }  # fmt: skip


def test_a_rollout_reads_the_weights_at_every_step_and_the_cache_at_every_token() -> None:
    found = bandwidth_of_rollout(rollout(2.0), 3e9, 1000.0)
    assert found is not None
    assert found.bytes_per_second == pytest.approx((100 * 3e9 + 5000 * (100 + 5000 / 64 / 2) * 1000) / 2)
    assert bandwidth_of_rollout({"step": 3, "loss": 0.1}, 3e9, 1000.0) is None


def test_slow_rollouts_are_told_at_the_third_and_their_end_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(rollout(seconds)) + "\n" for seconds in (9, 1.5, 9, 9, 9, 9, 1.5, 1.5)))
    watched = RolloutBandwidth(path, 3e9, 0.0, GB10_PEAK_BYTES_PER_SECOND)
    assert [notice.state for notice in watched.look()] == ["begin", "end"]
    assert watched.look() == ()
    assert watched.newest is not None
    assert watched.newest.bytes_per_second == 200e9


def test_energy_comes_from_the_counter_where_there_is_one() -> None:
    readings = [healthy_gb10(float(second)) for second in range(0, 101, 2)]
    energy = energy_between(readings, readings[0].t, readings[-1].t)
    assert energy is not None
    assert (energy.source, energy.joules) == ("counted", pytest.approx(41 * 100, rel=0.01))


def test_energy_is_integrated_from_power_where_the_counter_is_missing() -> None:
    readings = [healthy_gb10(float(second), energy_joules=None, power_watts=50.0) for second in range(0, 101, 2)]
    energy = energy_between(readings, readings[0].t, readings[-1].t)
    assert energy is not None
    assert (energy.source, energy.joules) == ("integrated", pytest.approx(5000, rel=0.01))


def test_energy_of_a_machine_without_power_is_unknown() -> None:
    readings = [at(float(second), 20) for second in range(20)]
    assert energy_between(readings, readings[0].t, readings[-1].t) is None


def test_energy_per_step_and_per_thousand_tokens() -> None:
    readings = [healthy_gb10(float(second), power_watts=50.0, energy_joules=None) for second in range(0, 101, 2)]
    start = readings[0].t
    rows = [{"t": start + 10 * step, "step": step, "rollout/num_tokens": 800} for step in range(11)]
    report = energy_of_run(readings, rows)
    assert report.joules_per_step == pytest.approx(500, rel=0.01)
    assert report.joules_per_1000_tokens == pytest.approx(5000 / 8, rel=0.01)


def test_energy_per_token_is_unknown_when_tokens_are() -> None:
    readings = [healthy_gb10(float(second), power_watts=50.0) for second in range(0, 101, 2)]
    report = energy_of_run(readings, [{"t": readings[0].t, "step": 0}, {"t": readings[-1].t, "step": 1}])
    assert report.joules_per_step is not None
    assert report.joules_per_1000_tokens is None
