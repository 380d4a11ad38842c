"""docs/diagnose.md says what the code does: the same symptoms, severities, thresholds and variants."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

from spark_rl.diagnose import Context, Finding, numbers, policy, rewards, variants, view

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "diagnose.md").read_text(encoding="utf-8")

ON_THE_PAGE: dict[ModuleType, dict[str, str]] = {
    numbers: {
        "FEW_ROWS": "few_rows",
        "MISMATCH_NATS": "engines_disagree",
        "BROKEN_MISMATCH_NATS": "engines_disagree",
        "UNSTABLE_GRAD_NORM": "unstable_gradients",
    },
    policy: {
        "COLLAPSED_ENTROPY": "entropy_collapse",
        "COLLAPSE_RATIO": "entropy_collapse",
        "FALLING_RATIO": "entropy_falling",
        "LATE_FALL_RATIO": "entropy_falling",
        "DISSOLVING_RATIO": "entropy_explosion",
        "DISSOLVING_ENTROPY": "entropy_explosion",
        "FAST_STEPS": "shortcut",
        "SWING": "shortcut",
        "SPIKE_RATIO": "kl_spike",
        "SPIKE_KL": "kl_spike",
        "SPIKE_NEIGHBOURS": "kl_spike",
        "MIN_RETURN_ROWS": "kl_spike",
        "BLOWN_KL": "kl_blow_up",
        "CUT_SHARE": "length_at_cap",
        "MOSTLY_CUT_SHARE": "length_at_cap",
        "AT_CAP": "length_at_cap",
    },
    rewards: {
        "MIN_DEAD_ROWS": "dead_reward_part",
        "LATE_BLOOM_STEPS": "dead_reward_part",
        "BAND": "zero_variance",
        "NOTABLE_ZERO_SHARE": "zero_variance",
        "WASTED_ZERO_SHARE": "zero_variance",
        "LOST_ZERO_SHARE": "zero_variance",
        "MOSTLY": "zero_variance",
        "LOW_LORA_RATE": "reward_trend",
    },
    view: {
        **dict.fromkeys(
            ("MIN_ROWS", "MIN_TREND_ROWS", "NUM_BLOCKS", "NUM_PEAK_BLOCKS", "SURE", "PROBABLE", "HINT", "FALL", "ZERO"),
            "in the text above the tables",
        ),
        "HIDDEN_GAIN": "reward_without_quality",
    },
}
"""Threshold of the code -> the row of the page that states it."""


def rows_of(section: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


SYMPTOMS = {
    row[0].strip("` "): row for name in ("The log itself", "The rewards", "The policy") for row in rows_of(name)
}


def findings_in_the_code() -> dict[str, set[str]]:
    """Id of every Finding that the code makes -> the severities it names outright."""
    found: dict[str, set[str]] = {}
    for module in (numbers, policy, rewards):
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding"):
                continue
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            name, severity = (
                node.args[place] if len(node.args) > place else given[key]
                for place, key in enumerate(("id", "severity"))
            )
            assert isinstance(name, ast.Constant)
            words = {part.value for part in (getattr(severity, "body", None), getattr(severity, "orelse", None), severity)
                     if isinstance(part, ast.Constant)}  # fmt: skip
            found.setdefault(str(name.value), set()).update(words)
    return found


def thresholds(module: ModuleType) -> dict[str, float]:
    """The numbers that a module names in capitals itself."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    names = [node.targets[0].id for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]  # fmt: skip
    return {name: value for name in names if isinstance(value := getattr(module, name), int | float)}


def states(text: str, value: float) -> bool:
    """Whether a text gives a value, as a number or as a share in percent."""
    written = {f"{value:g}".replace("e-0", "e-"), f"{100 * value:g} %"}
    return any(re.search(rf"(?<![\d.]){re.escape(one)}(?![\d]|\.\d)", text) for one in written)


def test_the_page_has_every_symptom_of_the_code_and_no_other() -> None:
    assert set(SYMPTOMS) == set(findings_in_the_code())


@pytest.mark.parametrize("name", sorted(findings_in_the_code()))
def test_the_page_has_the_severities_of_each_symptom(name: str) -> None:
    named = set(SYMPTOMS[name][1].split(", "))
    assert findings_in_the_code()[name] <= named <= {"fault", "warning", "info", "good"}


@pytest.mark.parametrize("name", sorted(findings_in_the_code()))
def test_each_symptom_says_how_it_is_seen_what_to_do_and_which_variant(name: str) -> None:
    assert len(SYMPTOMS[name]) == 5 and all(SYMPTOMS[name])


@pytest.mark.parametrize("module", ON_THE_PAGE, ids=lambda module: module.__name__.split(".")[-1])
def test_every_threshold_of_the_code_stands_where_the_page_speaks_of_it(module: ModuleType) -> None:
    values = thresholds(module)
    assert set(values) == set(ON_THE_PAGE[module]), "a threshold came or went: tell the page and this test"
    opening = PAGE.split("\n## ")[0]
    silent = {
        name: value
        for name, value in values.items()
        if not states(" | ".join(SYMPTOMS.get(ON_THE_PAGE[module][name], [opening])), value)
    }
    assert silent == {}


def finding(name: str, **numbers: float) -> Finding:
    return Finding(name, "warning", "", "", numbers=tuple(numbers.items()))


ADVISED = [
    ("dapo", [finding("entropy_collapse")], Context()),
    ("dapo", [finding("entropy_collapse")], Context(off_policy=False)),
    ("dapo", [finding("length_at_cap", early=0.0, late=0.9)], Context()),
    ("dr_grpo", [finding("length_without_quality")], Context()),
    ("dr_grpo", [finding("reward_without_quality")], Context()),
    ("gspo", [], Context(is_moe=True, off_policy=True)),
]


@pytest.mark.parametrize(("variant", "found", "context"), ADVISED)
def test_each_variant_stands_with_its_symptom_its_settings_and_its_cost(
    variant: str, found: list[Finding], context: Context
) -> None:
    advised = [one for one in variants.advise(found, context) if one.advised]
    assert [one.variant for one in advised] == [variant]
    rows = [
        row for row in rows_of("Variants") if row[0] == f"`{variant}`" and all(f"`{one.id}`" in row[1] for one in found)
    ]
    assert len(rows) == 1 and rows[0][3]
    assert advised[0].settings
    for setting in advised[0].settings:
        assert f"--set {setting}" in rows[0][2]
    assert ("Precondition" in rows[0][3]) is (advised[0].precondition is not None)
    for one in found:
        assert f"`{variant}`" in SYMPTOMS[one.id][4]


def test_only_the_symptoms_that_bring_a_variant_about_name_one() -> None:
    naming = {name for name, row in SYMPTOMS.items() if re.search(r"`(dapo|dr_grpo|gspo)`", row[4])}
    assert naming == {one.id for _, found, _ in ADVISED for one in found}


def test_the_simpler_causes_that_come_first_are_named() -> None:
    text = PAGE.split("\n## Variants\n")[1]
    assert [name for name in (*variants.SIMPLER_CAUSES, "zero_variance") if f"`{name}`" not in text] == []


def test_the_readme_links_the_page() -> None:
    assert "(docs/diagnose.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
