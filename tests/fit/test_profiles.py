"""Every shipped profile: fits its class, a smaller card does not, the anchors hold, each value has its reason."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from spark_rl.fit import FitReport, fit_report
from spark_rl.fit.remedies import with_settings
from spark_rl.fit.sweep import what_fits
from spark_rl.host import Machine, machine_class
from spark_rl.recipe import list_profiles, read_toml, resolve
from spark_rl.units import GIB

GPU_PROFILES = [path.stem for path in list_profiles() if not path.stem.startswith("cpu-")]
LEVERS = {
    "sleep mode": {"vllm.sleep": False},
    "8-bit AdamW": {"grpo.optim": "adamw_torch_fused"},
    "gradient checkpointing": {"memory.gradient_checkpointing": "off"},
}


def report_of(name: str) -> FitReport:
    recipe = resolve(name)
    return fit_report(recipe, machine_class(recipe.profile.machine), with_remedies=False)


def shrunk(machine: Machine, num_bytes: float) -> Machine:
    """The machine with that much less memory."""
    assert machine.device_total_bytes is not None
    available = machine.device_available_bytes
    return replace(
        machine,
        device_total_bytes=int(machine.device_total_bytes - num_bytes),
        device_available_bytes=None if available is None else int(available - num_bytes),
        host_available_bytes=None if available is None else int(available - num_bytes),
    )


@pytest.mark.parametrize("name", GPU_PROFILES)
def test_a_profile_fits_its_class_with_the_stated_headroom(name: str) -> None:
    report = report_of(name)
    assert report.verdict == "fits"
    text = (Path(list_profiles()[0]).parent / f"{name}.toml").read_text()
    stated = re.search(r"predicted peak ([\d.]+) of ([\d.]+) GiB", text)
    assert stated is not None
    assert float(stated[1]) == pytest.approx(report.peak_bytes / GIB, abs=0.05)
    assert float(stated[2]) == pytest.approx(report.budget.device_bytes / GIB, abs=0.05)


@pytest.mark.parametrize("name", GPU_PROFILES)
def test_a_budget_just_under_the_peak_does_not_fit(name: str) -> None:
    report = report_of(name)
    cap = report.peak_bytes * 0.995 / GIB
    capped = with_settings(resolve(name), {"memory.memory_cap_gib": cap})
    machine = machine_class(resolve(name).profile.machine)
    assert fit_report(capped, machine, with_remedies=False).verdict == "does_not_fit"


@pytest.mark.parametrize("name", GPU_PROFILES)
def test_every_value_of_a_profile_has_its_reason(name: str) -> None:
    table = read_toml(Path(list_profiles()[0]).parent / f"{name}.toml")
    for section in table:
        if section == "profile":
            continue
        for key in table[section]:
            comment = table[section].value.item(key).trivia.comment
            assert len(comment) > 10, f"{section}.{key}"


def test_all_size_and_memory_classes_are_covered() -> None:
    recipes = [resolve(name) for name in GPU_PROFILES]
    assert {recipe.profile.size_class for recipe in recipes} >= {
        "0.5b",
        "1.5b",
        "3b",
        "7-8b",
        "14b",
        "32b",
        "30b-a3b",
        "70b",
    }
    assert {recipe.profile.machine for recipe in recipes} >= {
        "12", "16", "24", "32", "48", "80", "96", "141", "180", "dgx-spark",
    }  # fmt: skip


@pytest.mark.parametrize("lever", LEVERS)
def test_3b_full_tuning_on_24_gb_needs_all_three_levers(lever: str) -> None:
    recipe = resolve("3b-full-24gb")
    assert fit_report(recipe, machine_class("24")).verdict == "fits"
    without = fit_report(with_settings(recipe, LEVERS[lever]), machine_class("24"), with_remedies=False)
    assert without.verdict == "does_not_fit", lever


@pytest.mark.parametrize(
    ("machine", "method", "size_class"),
    [("141", "lora", "32b"), ("180", "lora", "70b"), ("dgx-spark", "full", "9b"), ("dgx-spark", "lora", "32b")],
)
def test_the_anchors_of_the_design_hold(machine: str, method: str, size_class: str) -> None:
    found = {row.method: row.size_class for row in what_fits(machine_class(machine))}
    assert found[method] == size_class


def test_14b_full_tuning_is_beyond_a_spark() -> None:
    recipe = with_settings(resolve("8b-full-spark"), {"model.id": "Qwen/Qwen3-14B"})
    assert fit_report(recipe, machine_class("dgx-spark"), with_remedies=False).verdict == "does_not_fit"


def test_a_smaller_spark_is_refused_by_the_floor() -> None:
    recipe = resolve("8b-full-spark")
    spark = machine_class("dgx-spark")
    report = fit_report(recipe, spark)
    assert fit_report(recipe, shrunk(spark, report.headroom_bytes + GIB), with_remedies=False).verdict == "does_not_fit"
