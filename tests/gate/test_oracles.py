"""The demo's oracle knows the truth without the reward, and signs for nothing but the shipped task."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rl.dataset import Example
from spark_rl.errors import ConfigError, Refused
from spark_rl.gate import require_signoff, sign_with_oracle, write_samples
from spark_rl.gate.opinions import opinions_file, reader_kind
from spark_rl.gate.oracles import ORACLES, Oracle, oracle_opinion, sorted_digits, sums
from spark_rl.gate.samples import make_samples, read_samples
from spark_rl.rewards.base import Verdict
from spark_rl.rewards.composite import Composite
from spark_rl.task import Task, list_tasks, load_task

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
    signoff = sign_with_oracle(run, shipped.subject)
    assert (signoff.kind, signoff.reader) == ("oracle", "oracle, not a person")
    assert require_signoff(run, shipped.subject) == signoff


def test_the_oracle_disagrees_with_a_wrong_reward_and_does_not_sign(shipped: Bench) -> None:
    run = demo_run(shipped, wrong_reward=True)
    with pytest.raises(Refused, match="2 disagreements are open: s008, s011"):
        sign_with_oracle(run, shipped.subject)


@pytest.mark.parametrize(("completion", "value"), [("[01359]", 0.0), ("01359", 1.0), ("[13590]", 0.5), ("?", None)])
def test_the_oracle_disagrees_with_a_wrong_format_score(completion: str, value: float | None) -> None:
    task, row = load_task("sort-digits"), {"prompt": "sort 50391=", "answer": "[01359]"}
    scored = Composite(task.build_rewards()).score([completion], [row])[0]
    wrong = replace(scored, parts={**scored.parts, "format": Verdict(value, "")})
    sample = make_samples([Example("sort 50391=", row)], [Said(completion, 1)], [wrong])[0]
    opinion = oracle_opinion(ORACLES["sort-digits"], task, sample)
    assert opinion.says == "disagree"
    assert f"format is {value}" in opinion.note


def test_the_oracle_does_not_overrule_a_person(shipped: Bench) -> None:
    run = demo_run(shipped)
    shipped.say(run, "disagree", ["s001"])
    with pytest.raises(Refused, match="1 disagreement is open: s001"):
        sign_with_oracle(run, shipped.subject)


def test_an_oracles_verdict_that_was_edited_is_refused(shipped: Bench) -> None:
    run = demo_run(shipped, wrong_reward=True)
    with pytest.raises(Refused):
        sign_with_oracle(run, shipped.subject)
    path = opinions_file(run)
    path.write_text(path.read_text().replace('"disagree"', '"agree"'))
    with pytest.raises(Refused, match="the oracle does not say what is recorded for s008, s011"):
        shipped.sign(run)


def test_the_oracle_is_refused_for_a_task_that_is_no_demo(bench: Bench) -> None:
    run = bench.sampled_run()
    with pytest.raises(Refused, match="is not a demo: no oracle may sign it"):
        sign_with_oracle(run, bench.subject)
    assert not opinions_file(run).exists()


def test_the_oracle_is_refused_for_a_users_demo_task(bench: Bench) -> None:
    bench.task_file.write_text(task_text(demo=True).replace("demo = true", 'demo = true\noracle = "sort-digits"'))
    run = bench.sampled_run()
    with pytest.raises(Refused, match="not one of the shipped tasks"):
        sign_with_oracle(run, bench.subject)


def test_the_oracle_is_refused_for_a_copy_of_the_shipped_task(shipped: Bench) -> None:
    copy = Bench(shipped.folder)
    for path in shipped.task_file.parent.glob("sort-digits*"):
        shutil.copy(path, copy.folder)
    shutil.move(copy.folder / "sort-digits.toml", copy.task_file)
    run = demo_run(copy)
    with pytest.raises(Refused, match="not one of the shipped tasks"):
        sign_with_oracle(run, copy.subject)


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
    for wrong in (right[1:-1], right + "]", "", "?", right[::-1]):
        assert not sorted_digits(f"sort {digits}=", wrong).correct


@given(a=st.integers(0, 50), b=st.integers(0, 50))
def test_the_oracle_of_sums_accepts_one_number_only(a: int, b: int) -> None:
    assert sums(f"user\n{a} + {b}\nassistant\n{a} + {b} =", f" {a + b}").correct
    for wrong in (str(a + b + 1), f"{a + b}.", f"{a + b} 7", f"0{a + b}", ""):
        assert not sums(f"{a} + {b} =", wrong).correct


@pytest.mark.parametrize("oracle", ORACLES.values(), ids=list(ORACLES))
def test_an_oracle_that_cannot_read_the_prompt_signs_nothing(oracle: Oracle) -> None:
    with pytest.raises(Refused, match="cannot read the prompt"):
        oracle.judge("What is the capital of France?", "42")


SHIPPED = {"sort-digits": ("sort 50391=", "[01359]", "[]0123456789 ?"), "sums": ("17 + 25 =", "42", "0123456789 .x\n")}
"""Task -> a prompt, its right answer, and the alphabet of answers."""


@cache
def shipped_reward(name: str) -> tuple[Task, Composite]:
    task = load_task(name)
    return task, Composite(task.build_rewards())


@given(data=st.data(), name=st.sampled_from(sorted(SHIPPED.keys() & {path.stem for path in list_tasks()})))
def test_the_oracle_and_the_shipped_reward_agree_on_any_completion(data: st.DataObject, name: str) -> None:
    prompt, answer, alphabet = SHIPPED[name]
    around = st.text(alphabet, max_size=3)
    completion = data.draw(st.text(alphabet, max_size=12) | st.tuples(around, st.just(answer), around).map("".join))
    task, composite = shipped_reward(name)
    row = {"prompt": prompt, "answer": answer}
    scored = composite.score([completion], [row])
    sample = make_samples([Example(prompt, row)], [Said(completion, 1)], scored)[0]
    assert oracle_opinion(ORACLES[name], task, sample).says == "agree"


def test_an_oracles_note_says_what_is_wrong(shipped: Bench) -> None:
    run = demo_run(shipped, wrong_reward=True)
    opinions = {one.id: oracle_opinion(ORACLES["sort-digits"], shipped.task, one) for one in read_samples(run)}
    assert "correct is True, should be False: the right answer is [" in opinions["s008"].note
