"""The guard's decisions, from readings alone: in time, without need never, said once, with an end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_rl.errors import ConfigError
from spark_rl.guard import Action, Guard, GuardLimits, GuardState, decide, limits_for
from spark_rl.guard.battery import all_cases, play_case
from spark_rl.telemetry.reading import Reading
from spark_rl.units import GIB

from .conftest import at, healthy_gb10

UNIFIED = limits_for(True, None)


def acts(readings: list[Reading], limits: GuardLimits = UNIFIED) -> list[Action]:
    guard = Guard(limits)
    return [action for reading in readings for action in guard.observe(reading)]


def kinds(readings: list[Reading], limits: GuardLimits = UNIFIED) -> list[str]:
    return [action.kind for action in acts(readings, limits)]


@pytest.mark.parametrize("case", [case for case in all_cases() if not case.slow], ids=lambda case: case.name)
def test_every_reported_course_ends_as_it_should(case: object) -> None:
    for seed in range(5):
        result = play_case(case, seed)  # type: ignore[arg-type]
        assert result.outcome in ("in time", "no action, rightly"), result


@pytest.mark.slow  # hours of readings at the guard's pace, some seconds each
@pytest.mark.parametrize("case", [case for case in all_cases() if case.slow], ids=lambda case: case.name)
def test_every_hour_long_course_ends_as_it_should(case: object) -> None:
    result = play_case(case, 0)  # type: ignore[arg-type]
    assert result.outcome in ("in time", "no action, rightly"), result


def test_the_battery_has_at_least_twenty_dangers() -> None:
    assert sum(case.needs_action for case in all_cases()) >= 20


def test_memory_above_the_shed_level_asks_for_nothing() -> None:
    assert kinds([at(second / 2, 12.5) for second in range(200)]) == []


def test_shed_is_asked_once_and_ends_when_memory_is_back() -> None:
    readings = [at(float(second), 11.5) for second in range(20)] + [at(20.0 + second, 20.0) for second in range(60)]
    assert kinds(readings) == ["shed", "calm"]


def test_a_level_that_is_crossed_at_every_breath_does_not_flap() -> None:
    readings = [at(float(second), 11.5 if second % 90 < 45 else 20.0) for second in range(3600)]
    assert kinds(readings).count("shed") <= 4


def test_one_low_reading_between_high_ones_is_not_acted_on() -> None:
    assert kinds([at(0.0, 13), at(0.5, 13), at(1.0, 11.9), at(1.1, 13), at(1.6, 13)]) == []


def test_below_the_stop_level_the_worker_is_asked_to_end() -> None:
    assert kinds([at(second * 0.5, 9.9) for second in range(20)]) == ["stop"]


def test_a_worker_that_does_not_end_is_killed_after_its_grace() -> None:
    readings = [at(float(second), 9.6) for second in range(400)]
    found = acts(readings)
    assert [action.kind for action in found] == ["stop", "kill"]
    assert "still short" in found[1].reason


def test_the_floor_is_defended_at_once() -> None:
    assert kinds([at(0.0, 8.4)]) == ["kill"]


def test_nothing_is_asked_of_a_worker_that_was_killed() -> None:
    assert kinds([at(second * 0.1, 8.4 - second * 0.05) for second in range(100)]) == ["kill"]


def test_an_action_carries_the_readings_it_rests_on() -> None:
    action = acts([at(0.0, 8.4, worker_gib=90)])[0]
    assert action.before["headroom_gib"] == pytest.approx(8.4)
    assert action.before["headroom_source"] == "MemAvailable"
    assert action.before["worker_rss_gib"] == 90
    assert "8.40 GiB left by MemAvailable" in action.reason


def test_sampling_is_half_a_second_at_rest_and_faster_when_memory_falls() -> None:
    guard = Guard(UNIFIED)
    guard.observe(at(0.0, 60))
    assert guard.next_seconds == 0.5
    guard.observe(at(0.5, 55))
    assert guard.next_seconds <= 0.1
    guard.observe(at(0.6, 46))
    assert guard.next_seconds <= 0.03


def test_a_fall_to_the_depth_that_fit_predicted_is_the_plan() -> None:
    planned = replace(UNIFIED, expected_low_bytes=int(13 * GIB))
    readings = [at(0.0, 45)] + [at(0.5 + index * 0.03, max(13.5, 45 - index)) for index in range(60)]
    assert "kill" in kinds(readings)
    assert kinds(readings, planned) == []


def test_a_depth_the_run_came_back_from_is_no_news() -> None:
    fall = [45 - index for index in range(32)]
    first = [at(index * 0.1, level) for index, level in enumerate(fall)]
    again = [at(20 + index * 0.03, level) for index, level in enumerate(fall)]
    back = [at(10.0, 45), at(10.5, 45)]
    assert kinds([*first, *back, *again]) == []


def test_without_a_headroom_reading_nothing_is_decided() -> None:
    assert kinds([at(float(second), None) for second in range(10)]) == []


def test_readings_of_the_same_moment_or_out_of_order_are_passed_over() -> None:
    assert kinds([at(1.0, 20), at(1.0, 8.0), at(0.5, 8.0)]) == []


def test_pressure_stops_a_run_even_while_memory_looks_available() -> None:
    readings = [at(float(second), 14, host={"psi_memory_full_percent": 45.0}) for second in range(60)]
    assert kinds(readings) == ["shed", "stop"]


def test_pressure_with_memory_to_spare_is_somebody_elses_limit() -> None:
    assert kinds([at(float(second), 90, host={"psi_memory_full_percent": 60.0}) for second in range(60)]) == []


def test_decide_leaves_the_state_it_is_given_as_it_was() -> None:
    before = GuardState()
    after, _ = decide(UNIFIED, before, at(0.0, 60))
    assert before == GuardState()
    assert after != before


def hot(seconds: float, celsius: float) -> Reading:
    return healthy_gb10(seconds, temperature_c=celsius, margin_c=94.5 - celsius)


def test_86_degrees_on_a_spark_is_left_alone() -> None:
    assert kinds([hot(float(second), 86.0) for second in range(3600)]) == []


def test_heat_pauses_and_resumes_when_cool() -> None:
    readings = [hot(float(second), 91.0) for second in range(20)] + [hot(20.0 + second, 78.0) for second in range(20)]
    assert kinds(readings) == ["pause", "resume"]


def test_heat_that_a_pause_does_not_end_stops_the_run() -> None:
    assert kinds([hot(float(second), 91.0) for second in range(400)]) == ["pause", "stop"]


def test_the_fourth_pause_within_half_an_hour_is_a_stop() -> None:
    readings = [hot(float(second), 91.0 if second % 120 < 60 else 78.0) for second in range(600)]
    assert kinds(readings) == ["pause", "resume", "pause", "resume", "pause", "resume", "stop"]


def test_heat_about_to_switch_the_machine_off_kills() -> None:
    assert kinds([hot(float(second), 98.0) for second in range(20)]) == ["stop", "kill"] or kinds(
        [hot(float(second), 98.0) for second in range(20)]
    ) == ["kill"]


def test_a_hot_laptop_processor_does_not_pause_a_run_on_the_cpu() -> None:
    readings = [
        at(float(second), 20, host={"hottest_zone_c": 98.0, "hottest_zone_margin_c": 2.0}) for second in range(100)
    ]
    assert kinds(readings) == []


def test_default_floors_are_those_of_the_contract() -> None:
    card = limits_for(False, 64 * GIB)
    assert (UNIFIED.shed_bytes, UNIFIED.floor_bytes) == (12 * GIB, 8 * GIB)
    assert (card.shed_bytes, card.floor_bytes) == (4 * GIB, 2 * GIB)


def test_a_small_machine_gets_shares_and_says_so() -> None:
    limits = limits_for(False, 8 * GIB)
    assert (limits.shed_bytes, limits.floor_bytes) == (2 * GIB, 1 * GIB)
    assert "a quarter and an eighth" in limits.describe()


def test_the_recipes_values_are_taken() -> None:
    limits = limits_for(True, 120 * GIB, {"unified_shed_gib": 20.0, "unified_floor_gib": 10.0, "pause_celsius": 85.0})
    assert (limits.shed_bytes, limits.stop_bytes, limits.floor_bytes) == (20 * GIB, 15 * GIB, 10 * GIB)
    assert limits.pause_celsius == 85.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"unified_flor_gib": 8.0}, "unified_floor_gib"),
        ({"unified_shed_gib": 6.0}, "floor < shed"),
        ({"pause_celsius": -1.0}, "above 0"),
        ({"pause_celsius": 96.0}, "between resume_celsius and stop_celsius"),
    ],
)
def test_contradicting_limits_are_refused_by_name(settings: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        limits_for(True, 120 * GIB, settings)
