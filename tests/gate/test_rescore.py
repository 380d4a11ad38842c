"""A disagreement is closed by mending the reward and scoring the same samples again."""

from __future__ import annotations

import pytest

from spark_rl.errors import Refused
from spark_rl.gate import read_samples
from spark_rl.gate.inspection import read_inspection
from spark_rl.gate.rescore import Rescored, rescore
from spark_rl.gate.samples import drawn_file
from spark_rl.rundir import RunDir

from .conftest import Bench


def rescored(bench: Bench, run: RunDir) -> Rescored:
    return rescore(run, bench.subject)


def mend(bench: Bench) -> None:
    """The bare number counts too: changes the score of every third sample (`It is 17`)."""
    bench.rewrite("my_reward.py", lambda text: text.replace('text == f"<{right}>"', "right in text"))


def malformed(run: RunDir) -> list[str]:
    return [sample.id for sample in read_samples(run) if sample.completion.startswith("It is")]


def test_the_way_from_a_disagreement_to_a_signature(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.agree_to_all(run)
    bench.say(run, "disagree", malformed(run), note="17 is right")
    with pytest.raises(Refused, match="16 disagreements are open"):
        bench.sign(run)
    mend(bench)
    done = rescored(bench, run)
    assert list(done.reopened) == malformed(run)
    bench.say(run, "agree", malformed(run))
    bench.sign(run)
    assert bench.require(run).counts["rescored"] == 1


def test_the_same_samples_are_scored(bench: Bench) -> None:
    run = bench.sampled_run()
    before = [(sample.id, sample.prompt, sample.completion) for sample in read_samples(run)]
    mend(bench)
    rescored(bench, run)
    assert [(sample.id, sample.prompt, sample.completion) for sample in read_samples(run)] == before


def test_verdicts_on_unchanged_scores_stand_and_the_others_are_open(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.agree_to_all(run)
    mend(bench)
    rescored(bench, run)
    assert read_inspection(run).unread == malformed(run)


def test_a_disagreement_whose_score_did_not_change_stays_open(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.agree_to_all(run)
    bench.say(run, "disagree", ["s001"])
    mend(bench)
    assert rescored(bench, run).disputed == ("s001",)
    assert read_inspection(run).disputed == ["s001"]


def test_a_signature_does_not_outlive_other_scores(bench: Bench) -> None:
    run = bench.signed_run()
    mend(bench)
    rescored(bench, run)
    with pytest.raises(Refused, match="changed since it was signed: reward: correct"):
        bench.require(run)


def test_a_wrong_gold_answer_can_be_mended_in_the_data(bench: Bench) -> None:
    run = bench.sampled_run()
    right = next(sample for sample in read_samples(run) if sample.correct)
    bench.say(run, "disagree", [right.id])
    answer = right.row["answer"]
    bench.rewrite("train.jsonl", lambda text: text.replace(f'"answer": "{answer}"', '"answer": "0"'))
    done = rescored(bench, run)
    assert done.changed == (right.id,)
    assert read_inspection(run).disputed == []


def test_a_penalty_on_tokens_is_scored_from_their_kept_number(bench: Bench) -> None:
    run = bench.sampled_run()
    part = '[[reward]]\nname = "length"\nkind = "length_penalty"\nmax_length = 10\nbuffer = 10\n'
    bench.rewrite("task.toml", lambda text: text + "\n" + part)
    rescored(bench, run)
    assert all(sample.parts["length"].value == -sample.num_tokens / 10 for sample in read_samples(run))


@pytest.mark.parametrize(
    ("setting", "named"),
    [("grpo.temperature=0.7", "sampling: temperature"), ("grpo.top_k=5", "sampling: top_k")],
)
def test_other_sampling_is_another_draw(bench: Bench, setting: str, named: str) -> None:
    run = bench.sampled_run()
    bench.profile_sets.append(setting)
    with pytest.raises(Refused, match=named):
        rescored(bench, run)


def test_another_model_is_another_draw(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.rewrite("model/config.json", lambda text: text.replace("llama", "qwen2"))
    with pytest.raises(Refused, match="model: config"):
        rescored(bench, run)


def test_another_wording_is_another_draw(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.rewrite("task.toml", lambda text: text.replace('"{question}"', '"{question} Answer:"'))
    bench.rewrite("train.jsonl", lambda text: text.replace("}", ', "level": 1}'))
    with pytest.raises(Refused, match="no longer among the training prompts"):
        rescored(bench, run)


@pytest.mark.parametrize("damage", ["no samples", "no origin", "edited samples"])
def test_samples_that_nothing_vouches_for_are_not_scored(bench: Bench, damage: str) -> None:
    run = bench.new_run() if damage == "no samples" else bench.sampled_run()
    if damage == "no origin":
        drawn_file(run).unlink()
    if damage == "edited samples":
        run.inspect_samples.write_text(run.inspect_samples.read_text().replace("It is", "it is"))
    with pytest.raises(Refused, match="no samples to score again"):
        rescored(bench, run)


def test_after_a_damaged_write_a_new_draw_is_possible_in_spite_of_a_disagreement(bench: Bench) -> None:
    from spark_rl.gate import write_samples

    run = bench.sampled_run()
    bench.say(run, "disagree", ["s001"])
    drawn_file(run).unlink()
    write_samples(run, bench.samples(seed=2), bench.fingerprint(), 2)
    assert read_samples(run)[0].prompt == bench.samples(seed=2)[0].prompt
