"""Which prompts are drawn, that samples come back as they were, and the order in which they are read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rl.dataset import Example, Examples
from spark_rl.errors import Refused, RunDirError
from spark_rl.gate import Sample, draw_prompts, read_samples, write_samples
from spark_rl.gate.samples import read_drawn, review_order
from spark_rl.rewards.base import Verdict

from .conftest import Bench


def examples_of(num_train: int) -> Examples:
    train = tuple(Example(f"prompt {number}", {"n": number}) for number in range(num_train))
    return Examples(train, (Example("held out", {}),))


def sample(name: str, total: float | None, **changes: object) -> Sample:
    plain = Sample(name, "p", "c", 1, False, total, None, {"part": Verdict(total, "why")}, {})
    return replace(plain, **changes)  # type: ignore[arg-type]


@given(num_train=st.integers(1, 40), num_samples=st.integers(1, 100), seed=st.integers(0, 5))
def test_no_prompt_is_drawn_twice_before_every_one_was_drawn(num_train: int, num_samples: int, seed: int) -> None:
    drawn = [example.text for example in draw_prompts(examples_of(num_train), num_samples, seed)]
    counts = Counter(drawn)
    assert len(drawn) == num_samples
    assert max(counts.values()) - min(counts.values() if len(counts) == num_train else [0]) <= 1


def test_only_training_prompts_are_drawn() -> None:
    drawn = draw_prompts(examples_of(10), 50, 1)
    assert "held out" not in {example.text for example in drawn}


def test_a_prompt_that_occurs_twice_in_the_data_is_one_prompt() -> None:
    train = (Example("a  b", {}), Example("a b", {}), Example("c", {}))
    drawn = draw_prompts(Examples(train, ()), 2, 1)
    assert {" ".join(example.text.split()) for example in drawn} == {"a b", "c"}


def test_the_same_seed_draws_the_same_prompts_and_another_seed_others() -> None:
    examples = examples_of(1000)
    assert draw_prompts(examples, 50, 1) == draw_prompts(examples, 50, 1)
    assert draw_prompts(examples, 50, 1) != draw_prompts(examples, 50, 2)


@given(
    completion=st.text(st.characters(codec=None)),
    total=st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
)
def test_samples_come_back_with_the_same_digest(
    tmp_path_factory: pytest.TempPathFactory, completion: str, total: float | None
) -> None:
    run = Bench(tmp_path_factory.mktemp("run")).empty_run()
    kept = sample("s001", total, completion=completion)
    write_samples(run, [kept], {})
    assert [one.digest() for one in read_samples(run)] == [kept.digest()]


def test_a_row_value_that_json_does_not_know_is_kept_as_text(bench: Bench) -> None:
    run = bench.empty_run()
    write_samples(run, [sample("s001", 1.0, row={"when": complex(1, 2)})], {})
    assert read_samples(run)[0].row == {"when": "(1+2j)"}


def test_a_torn_sample_is_an_error_not_one_sample_fewer(bench: Bench) -> None:
    run = bench.sampled_run()
    run.inspect_samples.write_text(run.inspect_samples.read_text().replace('{"v"', '{"v', 1))
    with pytest.raises(RunDirError, match="cannot be read"):
        read_samples(run)


def test_a_run_without_samples_has_none(bench: Bench) -> None:
    run = bench.empty_run()
    assert read_samples(run) == []
    assert read_drawn(run) is None


def test_a_new_draw_is_refused_while_a_disagreement_is_open(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.say(run, "disagree", ["s003"])
    with pytest.raises(Refused, match="s003") as refusal:
        write_samples(run, bench.samples(seed=2), bench.fingerprint(), 2)
    assert "inspect rescore" in str(refusal.value.hint)


def test_a_new_draw_is_allowed_otherwise(bench: Bench) -> None:
    run = bench.sampled_run()
    bench.agree_to_all(run)
    write_samples(run, bench.samples(seed=2), bench.fingerprint(), 2)
    assert read_samples(run)[0].prompt == bench.samples(seed=2)[0].prompt


@given(totals=st.lists(st.one_of(st.none(), st.floats(-5, 5)), max_size=60), seed=st.integers(0, 3))
def test_every_sample_is_read_once_and_the_order_depends_on_the_seed_only(
    totals: list[float | None], seed: int
) -> None:
    samples = [sample(f"s{number:03d}", total) for number, total in enumerate(totals)]
    order = review_order(samples, seed)
    assert sorted(one.id for one in order) == [one.id for one in samples]
    assert order == review_order(samples, seed)


def test_both_tails_come_first_then_the_middle_in_no_order() -> None:
    samples = [sample(f"s{number:03d}", float(number)) for number in range(50)]
    totals = [one.total for one in review_order(samples, 1)]
    assert totals[:20] == [value for pair in zip(range(49, 39, -1), range(10), strict=True) for value in pair]
    assert sorted(map(float, range(10, 40))) == sorted(total for total in totals[20:] if total is not None)
    assert totals[20:] != sorted(totals[20:])  # type: ignore[type-var]


def test_samples_without_a_score_come_first_of_all() -> None:
    samples = [sample("a", 1.0), sample("b", None), sample("c", 0.0)]
    assert review_order(samples, 1)[0].id == "b"
