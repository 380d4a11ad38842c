"""From files to one recipe: precedence, provenance, floors, and all errors at once."""

from __future__ import annotations

import pytest

from spark_rl.errors import ConfigError
from spark_rl.recipe import list_profiles, recipe_from_json, resolve
from spark_rl.recipe_schema import SECTIONS
from spark_rl.task import load_task


def problems(profile="cpu-tiny", sets=()):
    with pytest.raises(ConfigError) as caught:
        resolve(profile, None, sets)
    return caught.value


@pytest.mark.parametrize("path", list_profiles(), ids=lambda path: path.stem)
def test_every_shipped_profile_resolves(path):
    assert resolve(str(path)).profile.title


@pytest.mark.parametrize("path", list_profiles(), ids=lambda path: path.stem)
def test_every_value_of_a_shipped_profile_has_a_reason(path):
    recipe = resolve(str(path))
    silent = [
        key
        for key, origin in recipe.provenance.items()
        if origin.reason is None and not key.startswith("profile.") and key != "model.id"
    ]
    assert silent == []


def test_base_values_are_those_of_the_reference_recipe():
    grpo = resolve("cpu-tiny").grpo
    assert (grpo.num_generations, grpo.beta, grpo.loss_type) == (8, 0.01, "grpo")


def write_task(folder, override):
    task = folder / "t.toml"
    task.write_text(
        '[task]\nname = "t"\ntitle = "t"\n[data]\ntrain = "x.jsonl"\n[prompt]\ntemplate = "{q}"\n'
        '[[reward]]\nname = "form"\nkind = "regex"\npattern = "a"\nmeans = "format"\n'
        '[[reward]]\nname = "right"\nkind = "exact"\nmeans = "correct"\n' + override
    )
    return task


def test_a_wrong_value_in_an_override_is_named_by_file_and_key_with_the_other_faults_of_the_file(tmp_path):
    task = write_task(
        tmp_path,
        '[override]\neval = 3\n[override.grpo]\nmax_steps = "forty"\nbeta = -1\nbetta = 1\n'
        "[override.lora]\ntarget_modules = [1]\n[datta]\n",
    )
    with pytest.raises(ConfigError) as caught:
        load_task(task)
    lines = caught.value.message.splitlines()
    assert all(line.startswith(f"{task}: ") for line in lines)
    for words in (
        "override.grpo.max_steps: 'forty': input should be a valid integer",
        "override.grpo.beta: -1: input should be greater than or equal to 0",
        "override.grpo.betta: unknown key (did you mean 'beta'?)",
        "override.lora.target_modules: [1]: input should be a valid string",
        "override.eval: must be a table (write [override.eval])",
        "datta: unknown table (did you mean 'data'?)",
    ):
        assert sum(words in line for line in lines) == 1, words
    assert len(lines) == 6


def test_set_wins_over_task_and_profile(tmp_path):
    task = write_task(tmp_path, "[override.grpo]\nmax_steps = 7 # short\nbeta = 0.02\n")
    overrides = load_task(task).overrides
    recipe = resolve("cpu-tiny", overrides, ["grpo.beta=0.5"])
    assert recipe.grpo.max_steps == 7
    assert recipe.grpo.beta == 0.5
    assert recipe.provenance["grpo.max_steps"].reason == "short"
    assert recipe.provenance["grpo.beta"].source == "--set"


def test_a_group_below_the_floor_is_refused_with_the_floor():
    error = problems(sets=["grpo.num_generations=4"])
    assert "below the floor of 8" in error.message
    assert "--set" in error.message


def test_a_group_of_one_says_why():
    assert "deviation of a single value" in problems(sets=["grpo.num_generations=1"]).message


def test_all_errors_are_told_at_once_with_the_nearest_key():
    error = problems(
        sets=["grpo.num_generation=8", "gpro.beta=1", "grpo.beta=-1", "grpo.num_generations=4", "nonsense"]
    )
    for words in (
        "did you mean 'num_generations'?",
        "did you mean 'grpo'?",
        "greater than or equal to 0",
        "section.key=value",
    ):
        assert words in error.message


def test_a_key_in_the_wrong_section_names_its_section():
    assert "belongs to [vllm]" in problems(sets=["grpo.gpu_memory_utilization=0.5"]).message


# Field report 1 and 2: (per-device batch, accumulation, G) that users asked for.
@pytest.mark.parametrize(
    ("batch", "accumulation", "group", "fits"),
    [(1, 1, 32, False), (8, 2, 3, False), (1, 4, 8, False), (4, 2, 8, True), (8, 2, 16, True), (1, 4, 16, False)],
)
def test_batch_arithmetic_is_checked_before_anything_is_loaded(batch, accumulation, group, fits):
    sets = [
        f"grpo.per_device_train_batch_size={batch}",
        f"grpo.gradient_accumulation_steps={accumulation}",
        f"grpo.num_generations={group}",
    ]
    if fits:
        assert resolve("cpu-tiny", None, sets).generation_batch_size % group == 0
    else:
        message = problems(sets=sets).message
        assert "do not divide by" in message
        assert f"per_device_train_batch_size {group}" in message


def test_valid_group_sizes_are_listed():
    sets = ["grpo.per_device_train_batch_size=8", "grpo.gradient_accumulation_steps=2", "grpo.num_generations=3"]
    assert "[2, 4, 8, 16]" in problems(sets=sets).message


def test_qlora_needs_a_quantised_base():
    assert "bnb-4bit" in problems(sets=["tuning.method=qlora"]).message


def test_full_fine_tuning_of_quantised_weights_is_refused():
    assert "cannot train quantised" in problems(sets=["model.quantization=bnb-4bit"]).message


def test_a_recipe_survives_its_json():
    recipe = resolve("cpu-tiny")
    assert recipe_from_json(recipe.to_json()) == recipe


@pytest.mark.parametrize(
    "setting",
    [
        "grpo.max_grad_norm=inf",
        "grpo.min_p=nan",
        "grpo.min_p=-4.0",
        "memory.memory_cap_gib=inf",
        f"grpo.seed={2**32}",
    ],
)
def test_a_value_that_no_library_takes_or_json_cannot_keep_is_refused_before_the_run(setting):
    assert setting.partition("=")[0] in problems(sets=[setting]).message


def test_keeping_a_single_checkpoint_is_refused_because_a_kill_while_it_is_written_would_leave_none():
    assert "grpo.save_total_limit" in problems(sets=["grpo.save_total_limit=1"]).message


def test_every_schema_key_has_a_base_value_or_may_be_unset():
    recipe = resolve("cpu-tiny")
    for section, schema in SECTIONS.items():
        for key, field in schema.model_fields.items():
            assert not field.is_required() or f"{section}.{key}" in recipe.provenance


def test_an_unknown_profile_names_the_nearest():
    assert "did you mean 'cpu-tiny'?" in str(problems("cpu-tinny").hint)


def test_a_broken_toml_file_names_file_and_line(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text("[grpo]\nbeta = \n")
    error = problems(str(path))
    assert "p.toml" in error.message and "line 2" in error.message
