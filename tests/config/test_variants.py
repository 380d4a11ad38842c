"""A variant of GRPO is admitted on its symptom alone: on the kind of model, or on an earlier run that shows it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_rl.cli import main
from spark_rl.diagnose import diagnose_run
from spark_rl.errors import Refused
from spark_rl.launch import Prepared, prepare
from spark_rl.recipe import list_profiles, resolve
from spark_rl.report import render_page
from spark_rl.report.gather import gather
from spark_rl.rundir import JsonlWriter, RunDir, list_runs, read_json, write_json
from spark_rl.runstate import read_run
from spark_rl.task import TASKS_DIR, load_task
from spark_rl.variants import SYMPTOMS, asked_variants, check_variant

CLIP_HIGHER = "grpo.epsilon_high=0.28"
DR_GRPO = ("grpo.loss_type=dr_grpo", "grpo.scale_rewards=none")
BY_SEQUENCE = "grpo.importance_sampling_level=sequence"
OFF_POLICY = "grpo.num_iterations=2"

MIXTURE = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def mixture(tmp_path: Path) -> str:
    """A folder with the config of a small mixture of experts, as a setting."""
    folder = tmp_path / "mixture"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MIXTURE))
    return f'model.id="{folder}"'


def make_ready(runs: Path, *sets: str, task: str = "sort-digits") -> Prepared:
    return prepare("cpu-tiny", task, ["engine.name=fake", *sets], runs)


def trained(run: RunDir, entropy: Callable[[int], float], length: Callable[[int], float] = lambda _: 8.0) -> RunDir:
    """The run with a hundred steps whose reward goes nowhere, as its worker would have written them."""
    noise = random.Random(7)
    writer = JsonlWriter(run.metrics)
    for index in range(100):
        writer.append(
            {
                "step": index + 1,
                "reward": 0.4 + noise.gauss(0, 0.02),
                "entropy": entropy(index),
                "completions/mean_length": length(index),
            }
        )
    writer.close()
    return run


def healthy(_: int) -> float:
    return 0.8


def collapsing(index: int) -> float:
    return max(0.02, 0.9 - index / 60)


def refused(runs: Path, *sets: str, task: str = "sort-digits") -> str:
    """The refusal of a new run; nothing of it may be left."""
    before = list_runs(runs)
    with pytest.raises(Refused) as caught:
        make_ready(runs, *sets, task=task)
    assert list_runs(runs) == before
    return f"{caught.value.message}\n{caught.value.hint}"


# a mixture of experts


@pytest.mark.parametrize("name", ["30b-a3b-lora-96gb", "30b-a3b-lora-spark"])
def test_the_shipped_profiles_of_a_mixture_of_experts_are_admitted_by_their_model(name: str, runs: Path) -> None:
    (ground,) = check_variant(resolve(name), load_task("sort-digits"), runs).grounds
    assert ground.variant == "gspo" and ground.run is None and "mixture of experts" in ground.why


@pytest.mark.parametrize("path", list_profiles(), ids=lambda path: path.stem)
def test_no_shipped_profile_is_refused_for_its_variant(path: Path, runs: Path) -> None:
    check_variant(resolve(str(path)), load_task("sort-digits"), runs)


def test_gspo_on_a_mixture_of_experts_makes_a_run_that_keeps_the_reason(runs: Path, mixture: str) -> None:
    ready = make_ready(runs, mixture, BY_SEQUENCE, OFF_POLICY)
    (kept,) = read_json(ready.run.variant)["variants"]
    assert kept["variant"] == "gspo" and kept["run"] is None and kept["note"] is None
    assert "mixture of experts" in kept["why"]


def test_gspo_with_on_policy_updates_is_said_to_change_nothing_and_not_refused(runs: Path, mixture: str) -> None:
    lines = list(make_ready(runs, mixture, BY_SEQUENCE).admission.lines())
    assert len(lines) == 2 and "without effect: updates are on-policy" in lines[1] and OFF_POLICY in lines[1]


def test_gspo_on_a_dense_model_is_refused(runs: Path) -> None:
    said = refused(runs, BY_SEQUENCE, OFF_POLICY)
    assert "this model is dense" in said and f"leave out {BY_SEQUENCE}" in said


def test_a_mixture_of_experts_does_not_let_the_other_variants_in(runs: Path, mixture: str) -> None:
    assert "asks for dr_grpo" in refused(runs, mixture, BY_SEQUENCE, *DR_GRPO)


# a run that shows the symptom


def test_plain_grpo_needs_no_evidence_and_keeps_none(runs: Path) -> None:
    ready = make_ready(runs)
    assert ready.admission.grounds == () and not ready.run.variant.exists()


@pytest.mark.parametrize(
    ("sets", "asked"),
    [
        ((CLIP_HIGHER,), {"dapo"}),
        (("grpo.mask_truncated_completions=true",), {"dapo"}),
        (("grpo.loss_type=dapo",), {"dapo"}),
        (("grpo.scale_rewards=none",), {"dr_grpo"}),
        ((*DR_GRPO, CLIP_HIGHER), {"dr_grpo", "dapo"}),
        ((BY_SEQUENCE, "grpo.epsilon=3e-4", "grpo.epsilon_high=4e-4"), {"gspo"}),
        (("grpo.loss_type=bnpo",), {"bnpo"}),
        (("grpo.scale_rewards=batch", OFF_POLICY), set()),
    ],
)
def test_every_variant_in_a_recipe_is_seen(sets: tuple[str, ...], asked: set[str]) -> None:
    assert set(asked_variants(resolve("cpu-tiny", None, sets))) == asked


def test_dapo_is_refused_where_no_run_is(runs: Path) -> None:
    said = refused(runs, CLIP_HIGHER)
    assert SYMPTOMS["dapo"] in said and "No run of this task and model" in said
    assert "train plain GRPO first" in said and "spark-rl diagnose RUN" in said


def test_dapo_is_refused_with_a_healthy_run_and_the_refusal_says_what_that_run_shows(runs: Path) -> None:
    run = trained(make_ready(runs).run, healthy)
    said = refused(runs, CLIP_HIGHER)
    assert "Runs of this task and model" in said and ": 1, none with evidence" in said
    assert f"{run.name}: needs an entropy collapse" in said


def test_dapo_is_refused_with_a_run_that_has_not_trained(runs: Path) -> None:
    run = make_ready(runs).run
    assert f"{run.name}: needs an entropy collapse" in refused(runs, CLIP_HIGHER)


def test_a_simpler_cause_is_named_in_place_of_an_admission(runs: Path) -> None:
    run = trained(make_ready(runs).run, collapsing)
    writer = JsonlWriter(run.metrics)
    writer.append({"step": 101, "reward": 0.4, "entropy": 0.02, "kl": float("nan"), "completions/mean_length": 8.0})
    writer.close()
    assert "first repair the numbers that are none" in refused(runs, CLIP_HIGHER)


def test_dapo_is_refused_with_a_collapse_on_another_task(runs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text((TASKS_DIR / "sort-digits.toml").read_text().replace('name = "sort-digits"', 'name = "other"'))
    trained(make_ready(runs, task=str(other)).run, collapsing)
    assert "No run of this task and model" in refused(runs, CLIP_HIGHER)


def test_a_run_under_an_earlier_version_of_the_task_file_is_no_evidence_and_is_named(
    runs: Path, tmp_path: Path
) -> None:
    task = tmp_path / "sort.toml"
    task.write_text((TASKS_DIR / "sort-digits.toml").read_text())
    run = trained(make_ready(runs, task=str(task)).run, collapsing)
    task.write_text(task.read_text() + "\n# the reward was mended\n")
    assert f"the task file has changed since: {run.name}" in refused(runs, CLIP_HIGHER, task=str(task))


def test_dapo_is_refused_with_a_collapse_of_another_model(runs: Path, mixture: str) -> None:
    trained(make_ready(runs, mixture).run, collapsing)
    assert "No run of this task and model" in refused(runs, CLIP_HIGHER)


def test_what_the_scripted_engine_shows_is_no_evidence_for_a_real_run(runs: Path) -> None:
    trained(make_ready(runs).run, collapsing)
    with pytest.raises(Refused, match="No run of this task and model"):
        check_variant(resolve("cpu-tiny", None, (CLIP_HIGHER,)), load_task("sort-digits"), runs)


def test_dapo_is_admitted_after_an_entropy_collapse_and_the_new_run_keeps_the_evidence(runs: Path) -> None:
    earlier = trained(make_ready(runs).run, collapsing)
    ready = make_ready(runs, CLIP_HIGHER, OFF_POLICY)
    (kept,) = read_json(ready.run.variant)["variants"]
    assert kept["variant"] == "dapo" and kept["run"] == earlier.name and kept["note"] is None
    assert [finding["id"] for finding in kept["findings"]] == ["entropy_collapse"]
    assert kept["findings"][0]["evidence"]
    (line,) = ready.admission.lines()
    assert line.startswith(f"variant: dapo: {earlier.name} shows entropy_collapse")


def test_the_same_model_under_another_spelling_of_its_folder_counts(
    runs: Path, mixture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(make_ready(runs, mixture).run, collapsing)
    monkeypatch.chdir(tmp_path)
    assert make_ready(runs, "model.id=./mixture", CLIP_HIGHER).admission.grounds[0].variant == "dapo"


def test_clip_higher_with_on_policy_updates_is_said_to_change_nothing(runs: Path) -> None:
    trained(make_ready(runs).run, collapsing)
    _, note = make_ready(runs, CLIP_HIGHER).admission.lines()
    assert "epsilon_high is without effect" in note and OFF_POLICY in note


def test_a_collapse_speaks_for_dapo_and_not_for_dr_grpo(runs: Path) -> None:
    trained(make_ready(runs).run, collapsing)
    assert "asks for dr_grpo" in refused(runs, *DR_GRPO)
    assert "asks for dr_grpo" in refused(runs, *DR_GRPO, CLIP_HIGHER)


def test_dr_grpo_is_admitted_after_a_length_that_grew_without_quality(runs: Path) -> None:
    earlier = trained(make_ready(runs).run, healthy, length=lambda index: 4.5 + 0.05 * index)
    (ground,) = make_ready(runs, *DR_GRPO).admission.grounds
    assert (ground.run, [one.id for one in ground.findings]) == (earlier.name, ["length_without_quality"])


def test_the_newest_run_that_shows_the_symptom_is_the_evidence(runs: Path) -> None:
    trained(make_ready(runs).run, collapsing)
    newer = trained(make_ready(runs).run, collapsing)
    trained(make_ready(runs).run, healthy)
    assert make_ready(runs, CLIP_HIGHER).admission.grounds[0].run == newer.name


def test_a_diagnosis_that_was_written_by_hand_admits_nothing(runs: Path) -> None:
    collapsed = trained(make_ready(runs).run, collapsing)
    forged = diagnose_run(read_run(collapsed)).to_json()
    collapsed.metrics.unlink()
    write_json(collapsed.diagnosis, forged)
    assert "none with evidence" in refused(runs, CLIP_HIGHER)


def test_a_run_that_cannot_be_read_is_skipped_and_said(runs: Path) -> None:
    trained(make_ready(runs).run, collapsing)
    broken, newer = make_ready(runs).run, make_ready(runs).run
    broken.recipe.write_text("{")
    newer.metrics.write_text('{"v": 99, "step": 1}\n')
    _, _, *notes = make_ready(runs, CLIP_HIGHER).admission.lines()
    assert len(notes) == 2 and all("skipped" in note for note in notes)
    assert any(str(broken.recipe) in note for note in notes) and any("schema 99" in note for note in notes)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("events.jsonl", '{"event": "x", "t": "noon"}\n{"event": "y", "t": 1.0}\n'),
        ("events.jsonl", '{"event": "supervisor_started"}\n{"event": "run_ended", "exit_code": [1]}\n'),
        ("worker.jsonl", '{"event": "phase_started"}\n{"event": "phase_progressed"}\n'),
        ("worker.jsonl", "[" * 100_000 + "\n"),
        ("processes.json", '{"supervisor": "gone"}'),
        ("eval.json", "[" * 100_000),
        ("metrics.jsonl", '{"step": 1, "reward": 1' + 400 * "0" + "}\n"),
    ],
)
def test_an_earlier_run_with_rows_of_a_strange_shape_stops_no_new_one(runs: Path, file: str, text: str) -> None:
    trained(make_ready(runs).run, collapsing)
    strange = trained(make_ready(runs).run, healthy)
    (strange.path / file).write_text(text)
    assert make_ready(runs, CLIP_HIGHER).admission.grounds[0].variant == "dapo"


def test_a_refusal_says_which_runs_could_not_be_read(runs: Path) -> None:
    broken = make_ready(runs).run
    broken.recipe.write_text("{")
    assert f"skipped: {broken.recipe}: cannot be read" in refused(runs, CLIP_HIGHER)


def test_another_loss_has_no_symptom_and_stays_refused_whatever_a_run_shows(runs: Path) -> None:
    trained(make_ready(runs).run, collapsing)
    assert "asks for bnpo, a variant for: no symptom that we know of" in refused(runs, "grpo.loss_type=bnpo")


# where the evidence is seen


def test_the_report_says_on_what_evidence_the_variant_was_admitted(runs: Path) -> None:
    earlier = trained(make_ready(runs).run, collapsing)
    page = render_page(gather(make_ready(runs, CLIP_HIGHER).run))
    assert "Variant of GRPO" in page and f"was admitted: {earlier.name} shows entropy_collapse" in page
    assert "Variant of GRPO" not in render_page(gather(earlier))


def test_the_first_screen_and_the_json_of_a_run_name_the_evidence(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = trained(make_ready(runs).run, collapsing)
    monkeypatch.setattr("spark_rl.supervisor.start", lambda run, stages: None)
    monkeypatch.setattr("spark_rl.cli.follow.follow", lambda *_: 0)
    settings = ["--set", "engine.name=fake", "--set", CLIP_HIGHER, "--set", OFF_POLICY]
    code = main(["train", "--profile", "cpu-tiny", "--task", "sort-digits", *settings, "--runs", str(runs), "--json"])
    captured = capsys.readouterr()
    assert code == 0 and f"variant: dapo: {earlier.name} shows entropy_collapse" in captured.err
    (ground,) = json.loads(captured.out)["variants"]
    assert (ground["variant"], ground["run"]) == ("dapo", earlier.name)


def test_a_run_that_was_admitted_goes_on_when_the_evidence_has_gone(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = trained(make_ready(runs).run, collapsing)
    run = make_ready(runs, CLIP_HIGHER).run
    earlier.metrics.unlink()
    monkeypatch.setattr("spark_rl.supervisor.start", lambda run, stages: None)
    monkeypatch.setattr("spark_rl.cli.follow.follow", lambda *_: 0)
    assert main(["train", "--run", run.name, "--runs", str(runs)]) == 0
    assert main(["resume", run.name, "--runs", str(runs)]) == 0


def test_our_own_runs_say_what_kind_of_model_they_train(runs: Path, mixture: str) -> None:
    def gspo(*sets: str):
        run = trained(make_ready(runs, *sets).run, healthy)
        return next(one for one in diagnose_run(read_run(run)).variants if one.variant == "gspo")

    assert gspo(mixture, OFF_POLICY).settings == (BY_SEQUENCE,)
    assert "on-policy" in gspo(mixture).words and "this one is dense" in gspo().words


def test_a_run_whose_model_has_gone_does_not_guess_its_kind(runs: Path, mixture: str) -> None:
    run = trained(make_ready(runs, mixture, OFF_POLICY).run, healthy)
    Path(mixture.split('"')[1], "config.json").unlink()
    gspo = next(one for one in diagnose_run(read_run(run)).variants if one.variant == "gspo")
    assert not gspo.advised and "does not say what model" in gspo.words
