"""Nothing skips the gate: whatever is missing, changed or forged is refused (exit 4) and named."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from spark_rl.errors import ExitCode, Refused
from spark_rl.gate import adopt_signoff, is_signed, require_signoff, sign, sign_with_oracle, write_samples
from spark_rl.gate.opinions import opinions_file
from spark_rl.gate.samples import drawn_file, read_samples
from spark_rl.gate.signoff import _seal, _to_json
from spark_rl.gate.subject import Subject
from spark_rl.rundir import RunDir

from .conftest import Bench, task_text


def refusal(bench: Bench, run: RunDir) -> str:
    with pytest.raises(Refused) as caught:
        bench.require(run)
    assert caught.value.exit_code == ExitCode.REFUSED
    assert caught.value.hint
    return caught.value.message


def edit_json(run: RunDir, change: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads(run.inspection.read_text())
    change(value)
    run.inspection.write_text(json.dumps(value))


# --- the way through ------------------------------------------------------------------------------------------------


def test_a_signed_run_may_be_trained(bench: Bench) -> None:
    run = bench.signed_run()
    signoff = bench.require(run)
    assert (signoff.run, signoff.kind, signoff.reader) == (run.name, "person", "anna")
    assert signoff.counts["agree"] == signoff.counts["samples"] == 50
    assert is_signed(run)


def test_a_sign_off_of_another_run_with_the_same_fingerprint_counts(bench: Bench) -> None:
    signed, other = bench.signed_run(), bench.new_run()
    assert bench.require(other).run == signed.name
    assert not is_signed(other)


def test_an_adopted_sign_off_stands_alone(bench: Bench) -> None:
    signed, other = bench.signed_run(), bench.new_run()
    adopt_signoff(other, bench.require(other), bench.runs)
    shutil.rmtree(signed.path)
    assert bench.require(other).run == signed.name


def test_adopting_keeps_the_samples_a_run_has(bench: Bench) -> None:
    signed, other = bench.signed_run(), bench.sampled_run(seed=2)
    before = other.inspect_samples.read_text()
    adopt_signoff(other, bench.require(other), bench.runs)
    assert other.inspect_samples.read_text() == before
    assert bench.require(other).run == signed.name


def test_unsure_is_an_honest_answer(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.agree_to_all(run)
    bench.say(run, "unsure", ["s001", "s002"])
    assert bench.sign(run).counts["unsure"] == 2


def test_what_stood_out_is_kept_in_the_record(bench: Bench) -> None:
    bench.rewrite("task.toml", lambda text: text.replace("<\\d+>", "<x>"))
    run = bench.signed_run()
    assert any("0 of 50 samples ever score on format" in alarm for alarm in bench.require(run).alarms)


def test_no_function_of_the_gate_takes_a_flag_that_skips_it() -> None:
    for function in (sign, sign_with_oracle, require_signoff):
        names = set(inspect.signature(function).parameters)
        assert names <= {"run", "subject", "runs_root", "clock"}
    assert {one.name for one in fields(Subject)} == {"recipe", "task", "examples", "model_dir"}


# --- signing --------------------------------------------------------------------------------------------------------


def signing_refused(bench: Bench, run: RunDir) -> str:
    with pytest.raises(Refused) as caught:
        bench.sign(run)
    assert not run.inspection.exists()
    return caught.value.message


def test_without_samples_there_is_nothing_to_sign(bench: Bench) -> None:
    assert "no samples have been drawn" in signing_refused(bench, bench.new_run())


def test_one_missing_verdict_is_named(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.say(run, "agree", [sample.id for sample in read_samples(run) if sample.id != "s017"])
    assert "1 of 50 samples have no verdict: s017" in signing_refused(bench, run)


def test_an_open_disagreement_is_named(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.agree_to_all(run)
    bench.say(run, "disagree", ["s009"])
    assert "1 disagreement is open: s009" in signing_refused(bench, run)


def test_everything_that_is_missing_is_said_at_once(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.say(run, "disagree", ["s009"])
    told = signing_refused(bench, run)
    assert "49 of 50 samples have no verdict" in told
    assert "s009" in told


def test_a_reader_who_is_mostly_unsure_vouches_for_nothing(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.say(run, "unsure", [sample.id for sample in read_samples(run)])
    assert "50 of 50 verdicts are unsure" in signing_refused(bench, run)


def test_too_few_samples_cannot_be_signed(bench: Bench) -> None:
    run = bench.sampled_run(num=49)
    bench.agree_to_all(run)
    assert "49 samples are too few" in signing_refused(bench, run)


def test_a_reward_that_failed_on_a_sample_cannot_be_signed(bench: Bench) -> None:
    bench.rewrite("my_reward.py", lambda text: text.replace("return [", "return [float('nan')] + [").replace(
        "zip(completions, answer)", "list(zip(completions, answer))[1:]"))  # fmt: skip
    run = bench.sampled_run()
    bench.agree_to_all(run)
    assert "the reward itself failed on 1 of 50 samples: s001" in signing_refused(bench, run)


def test_a_reward_that_changed_since_the_draw_cannot_be_signed(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.agree_to_all(run)
    bench.rewrite("my_reward.py", lambda text: text.replace("0.0", "0.5"))
    assert "changed since the samples were drawn: reward: correct" in signing_refused(bench, run)


def test_samples_that_were_edited_cannot_be_signed(bench: Bench) -> None:
    run = bench.sampled_run()
    run.inspect_samples.write_text(run.inspect_samples.read_text().replace("It is", "it is"))
    bench.agree_to_all(run)
    assert "not the ones that were drawn" in signing_refused(bench, run)


def test_another_draw_does_not_settle_a_disagreement(bench: Bench) -> None:
    disputed, fresh = bench.sampled_run(), bench.sampled_run(seed=2)
    bench.say(disputed, "disagree", ["s004"])
    bench.agree_to_all(fresh)
    told = signing_refused(bench, fresh)
    assert disputed.name in told
    assert "s004" in told


def test_a_later_disagreement_in_any_run_closes_the_gate_again(bench: Bench) -> None:
    signed, other = bench.signed_run(), bench.sampled_run(seed=2)
    bench.say(other, "disagree", ["s004"])
    for run in (signed, other, bench.new_run()):
        assert f"a reader of {other.name} disagrees with this reward on s004" in refusal(bench, run)


def test_the_closest_sign_off_is_named_with_what_differs(bench: Bench) -> None:
    signed = bench.signed_run()
    bench.rewrite("my_reward.py", lambda text: text.replace("0.0", "0.5"))
    assert f"{signed.name} is signed, but differs in: reward: correct" in refusal(bench, bench.new_run())


def test_a_mended_reward_does_settle_it(bench: Bench) -> None:
    disputed = bench.sampled_run()
    bench.say(disputed, "disagree", ["s004"])
    bench.rewrite("my_reward.py", lambda text: text.replace("0.0", "0.1"))
    fresh = bench.sampled_run(seed=2)
    bench.agree_to_all(fresh)
    assert bench.sign(fresh).run == fresh.name


# --- after signing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "old", "new", "named"),
    [
        ("task.toml", "[task]", "# a remark\n[task]", "task file"),
        ("my_reward.py", "0.0", "0.5", "reward: correct"),
        ("train.jsonl", '"answer": "3"', '"answer": "4"', "data"),
        ("model/config.json", "llama", "qwen2", "model: config"),
    ],
)
def test_a_change_after_signing_is_named(bench: Bench, name: str, old: str, new: str, named: str) -> None:
    run = bench.signed_run()
    bench.rewrite(name, lambda text: text.replace(old, new, 1))
    told = refusal(bench, run)
    assert "changed since it was signed" in told
    assert named in told


def test_another_temperature_than_the_signed_one_is_named_with_both_values(bench: Bench) -> None:
    run = bench.signed_run()
    bench.profile_sets.append("grpo.temperature=0.7")
    assert "sampling: temperature (was 1.0, now 0.7)" in refusal(bench, run)


def test_putting_the_change_back_makes_the_sign_off_hold_again(bench: Bench) -> None:
    run = bench.signed_run()
    bench.rewrite("my_reward.py", lambda text: text.replace("0.0", "0.5"))
    refusal(bench, run)
    bench.rewrite("my_reward.py", lambda text: text.replace("0.5", "0.0"))
    assert bench.require(run).run == run.name


def test_a_disagreement_after_signing_reopens_the_gate(bench: Bench) -> None:
    run = bench.signed_run()
    bench.say(run, "disagree", ["s001"])
    assert f"a reader of {run.name} disagrees with this reward on s001" in refusal(bench, run)


def test_another_verdict_after_signing_needs_another_signature(bench: Bench) -> None:
    run = bench.signed_run()
    bench.say(run, "unsure", ["s001"])
    assert "verdicts were changed after signing" in refusal(bench, run)
    bench.sign(run)
    assert bench.require(run).counts["unsure"] == 1


def test_new_samples_after_signing_need_a_new_reading(bench: Bench) -> None:
    run = bench.signed_run()
    write_samples(run, bench.samples(seed=2), bench.fingerprint(), 2)
    assert "have no verdict" in refusal(bench, run)


# --- forgery --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.update(reader="somebody else"),
        lambda value: value.update(readers=["somebody else"]),
        lambda value: value.update(kind="script"),
        lambda value: value.update(alarms=["nothing stood out"]),
        lambda value: value.update(signed_seconds=1.0),
        lambda value: value["counts"].update(unsure=3),
        lambda value: value["fingerprint"].update(data="other"),
        lambda value: value.pop("seal"),
    ],
)
def test_an_edited_record_is_refused(bench: Bench, change: Callable[[dict[str, Any]], None]) -> None:
    run = bench.signed_run()
    edit_json(run, change)
    assert "was changed after signing" in refusal(bench, run)


@pytest.mark.parametrize("content", ["{}", '{"signed": true}', '{"v": 1, "kind": "person", "counts": 7}'])
def test_a_record_written_by_hand_is_refused(bench: Bench, content: str) -> None:
    run = bench.sampled_run()
    run.inspection.write_text(content)
    assert "not a sign-off record" in refusal(bench, run)


def test_a_copied_record_without_its_samples_is_refused(bench: Bench) -> None:
    signed, other = bench.signed_run(), bench.new_run()
    shutil.copy(signed.inspection, other.inspection)
    shutil.rmtree(signed.path)
    assert "no samples have been drawn" in refusal(bench, other)


def test_a_copied_record_over_other_samples_is_refused(bench: Bench) -> None:
    signed, other = bench.signed_run(), bench.sampled_run(seed=2)
    bench.agree_to_all(other)
    shutil.copy(signed.inspection, other.inspection)
    shutil.rmtree(signed.path)
    assert "the samples were changed after signing" in refusal(bench, other)


def test_deleted_verdicts_are_missed(bench: Bench) -> None:
    run = bench.signed_run()
    opinions_file(run).unlink()
    assert "50 of 50 samples have no verdict" in refusal(bench, run)


def test_a_deleted_sample_is_missed(bench: Bench) -> None:
    run = bench.signed_run()
    lines = run.inspect_samples.read_text().splitlines(keepends=True)
    run.inspect_samples.write_text("".join(lines[:-1]))
    assert "not the ones that were drawn" in refusal(bench, run)


def test_a_changed_origin_of_the_samples_is_missed(bench: Bench) -> None:
    run = bench.signed_run()
    drawn_file(run).unlink()
    assert "not the ones that were drawn" in refusal(bench, run)


def test_another_fingerprint_of_the_draw_is_missed(bench: Bench) -> None:
    run = bench.signed_run()
    value = json.loads(drawn_file(run).read_text())
    value["fingerprint"]["data"] = "other"
    drawn_file(run).write_text(json.dumps(value))
    assert "drawn or scored under other settings" in refusal(bench, run)


def test_a_record_that_names_a_person_for_a_scripts_verdicts_is_refused_though_it_is_sealed(bench: Bench) -> None:
    bench.task_file.write_text(task_text(demo=True))
    run = bench.sampled_run()
    bench.agree_to_all(run, "script", "script")
    forged = replace(bench.sign(run), kind="person", readers=("anna",))
    run.inspection.write_text(json.dumps({**_to_json(forged), "seal": _seal(forged)}))
    assert "names another kind of reader" in refusal(bench, run)


def test_verdicts_turned_into_a_persons_by_hand_do_not_fit_the_record(bench: Bench) -> None:
    bench.task_file.write_text(task_text(demo=True))
    run = bench.sampled_run()
    bench.agree_to_all(run, "script", "script")
    bench.sign(run)
    path = opinions_file(run)
    path.write_text(path.read_text().replace('"kind":"script"', '"kind":"person"'))
    assert "verdicts were changed after signing" in refusal(bench, run)


def test_a_broken_run_beside_it_stops_nothing(bench: Bench) -> None:
    broken, signed, other = bench.sampled_run(), bench.signed_run(), bench.new_run()
    broken.inspect_samples.write_text('{"id": 1}\n')
    broken.inspection.write_text("{")
    assert bench.require(other).run == signed.name


# --- programs as readers --------------------------------------------------------------------------------------------


def test_a_script_may_sign_a_demo_task(bench: Bench) -> None:
    bench.task_file.write_text(task_text(demo=True))
    run = bench.sampled_run()
    bench.agree_to_all(run, "script", "script")
    bench.sign(run)
    signoff = bench.require(run)
    assert (signoff.kind, signoff.reader) == ("script", "script, not a person")


def test_a_script_may_not_sign_any_other_task(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.agree_to_all(run, "script", "script")
    assert "is not a demo: a person reads it" in signing_refused(bench, run)


def test_one_verdict_of_a_script_among_a_persons_counts_as_the_scripts(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.agree_to_all(run)
    bench.say(run, "agree", ["s001"], "script", "script")
    assert "1 verdict by a script" in signing_refused(bench, run)


def test_a_script_signed_demo_that_stops_being_a_demo_is_refused(bench: Bench) -> None:
    bench.task_file.write_text(task_text(demo=True))
    run = bench.sampled_run()
    bench.agree_to_all(run, "script", "script")
    bench.sign(run)
    bench.task_file.write_text(task_text(demo=False))
    assert "task file" in refusal(bench, run)
