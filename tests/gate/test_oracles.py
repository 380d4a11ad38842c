"""The demo's oracle knows the truth without the reward, and signs for nothing but the shipped task."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rl.errors import ConfigError, Refused
from spark_rl.gate import require_signoff, sign_with_oracle, write_samples
from spark_rl.gate.opinions import opinions_file, reader_kind
from spark_rl.gate.oracles import ORACLES, oracle_opinion, sorted_digits
from spark_rl.gate.samples import make_samples, read_samples
from spark_rl.rewards.composite import Composite
from spark_rl.task import list_tasks, load_task

from .conftest import Bench, Said, score, task_text


def demo_run(bench: Bench, wrong_reward: bool = False):  # type: ignore[no-untyped-def]
    """Samples of the shipped task: right, wrong, unsorted, bare and cut-off answers."""
    run = bench.new_run()
    examples = list(bench.examples.train[:50])
    texts = []
    for index, example in enumerate(examples):
        right = str(example.row["answer"])
        texts.append((right, right[1:-1], right[::-1].replace("[", "(").replace("]", "["), "?", right + "[")[index % 5])
    scored = score(bench.task, texts, [example.row for example in examples])
    if wrong_reward:
        scored[7], scored[10] = scored[10], scored[7]
    samples = make_samples(examples, [Said(text, len(text)) for text in texts], scored)
    write_samples(run, samples, bench.fingerprint())
    return run


def test_the_oracle_signs_the_shipped_demo_and_is_recorded_as_no_person(shipped: Bench) -> None:
    run = demo_run(shipped)
    signoff = sign_with_oracle(run, *shipped.subject)
    assert (signoff.kind, signoff.reader) == ("oracle", "oracle, not a person")
    assert require_signoff(run, *shipped.subject) == signoff


def test_the_oracle_disagrees_with_a_wrong_reward_and_does_not_sign(shipped: Bench) -> None:
    run = demo_run(shipped, wrong_reward=True)
    with pytest.raises(Refused, match="2 disagreements are open: s008, s011"):
        sign_with_oracle(run, *shipped.subject)


def test_the_oracle_does_not_overrule_a_person(shipped: Bench) -> None:
    run = demo_run(shipped)
    shipped.say(run, "disagree", ["s001"])
    with pytest.raises(Refused, match="1 disagreement is open: s001"):
        sign_with_oracle(run, *shipped.subject)


def test_an_oracles_verdict_that_was_edited_is_refused(shipped: Bench) -> None:
    run = demo_run(shipped, wrong_reward=True)
    with pytest.raises(Refused):
        sign_with_oracle(run, *shipped.subject)
    path = opinions_file(run)
    path.write_text(path.read_text().replace('"disagree"', '"agree"'))
    with pytest.raises(Refused, match="the oracle does not say what is recorded for s008, s011"):
        shipped.sign(run)


def test_the_oracle_is_refused_for_a_task_that_is_no_demo(bench: Bench) -> None:
    run = bench.sampled_run()
    with pytest.raises(Refused, match="is not a demo: no oracle may sign it"):
        sign_with_oracle(run, *bench.subject)
    assert not opinions_file(run).exists()


def test_the_oracle_is_refused_for_a_users_demo_task(bench: Bench) -> None:
    bench.task_file.write_text(task_text(demo=True).replace("demo = true", 'demo = true\noracle = "sort-digits"'))
    run = bench.sampled_run()
    with pytest.raises(Refused, match="not one of the shipped tasks"):
        sign_with_oracle(run, *bench.subject)


def test_the_oracle_is_refused_for_a_copy_of_the_shipped_task(shipped: Bench) -> None:
    copy = Bench(shipped.folder)
    for path in shipped.task_file.parent.glob("sort-digits*"):
        shutil.copy(path, copy.folder)
    shutil.move(copy.folder / "sort-digits.toml", copy.task_file)
    run = demo_run(copy)
    with pytest.raises(Refused, match="not one of the shipped tasks"):
        sign_with_oracle(run, *copy.subject)


def test_verdicts_that_claim_to_be_an_oracles_are_refused_for_other_tasks(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.agree_to_all(run, "oracle sort-digits", "oracle")
    with pytest.raises(Refused, match="is not a demo"):
        bench.sign(run)


@pytest.mark.parametrize("name", ["oracle", "Oracle", "oracle sort-digits", "oracle, not a person"])
def test_nobody_may_call_themselves_an_oracle(name: str) -> None:
    with pytest.raises(ConfigError, match="reserved"):
        reader_kind(name)


def test_every_shipped_task_with_an_oracle_names_one_that_exists() -> None:
    tasks = [load_task(path) for path in list_tasks()]
    assert {task.task.oracle for task in tasks if task.task.oracle} <= set(ORACLES)
    assert all(task.task.demo for task in tasks if task.task.oracle)


@given(digits=st.text("0123456789", min_size=5, max_size=5))
def test_the_oracle_of_sorted_digits_accepts_one_answer_only(digits: str) -> None:
    right = f"[{''.join(sorted(digits))}]"
    assert sorted_digits(f"sort {digits}=", right).correct
    for wrong in (right[1:-1], right + " ", right + "]", "", "?", right[::-1]):
        assert not sorted_digits(f"sort {digits}=", wrong).correct


@given(completion=st.text("[]0123456789 ?", max_size=12))
def test_the_oracle_and_the_shipped_reward_agree_on_any_completion(completion: str) -> None:
    task = load_task("sort-digits")
    row = {"prompt": "sort 50391=", "answer": "[01359]"}
    scored = Composite(task.build_rewards()).score([completion], [row])
    from spark_rl.dataset import Example

    sample = make_samples([Example("sort 50391=", row)], [Said(completion, 1)], scored)[0]
    assert oracle_opinion(ORACLES["sort-digits"], task, sample).says == "agree"


def test_an_oracles_note_says_what_is_wrong(shipped: Bench) -> None:
    run = demo_run(shipped, wrong_reward=True)
    opinions = {one.id: oracle_opinion(ORACLES["sort-digits"], shipped.task, one) for one in read_samples(run)}
    assert "correct is True, should be False: the right answer is [" in opinions["s008"].note
