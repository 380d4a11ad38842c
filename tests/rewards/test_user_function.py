"""Users' functions and reasoning-gym scorers: run apart, stopped when they hang, failures told and never scored 0."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from spark_rl.errors import ConfigError
from spark_rl.rewards import Composite, ReasoningGym, RewardBug, RewardPart, UserFunction

SOURCE = """
import time
from helper import factor

def lengths(completions, prompts, **columns):
    return [factor * len(text) for text in completions]

def spoken(completions, **columns):
    return [float(messages[0]["content"]) for messages in completions]

def scalar(completions, **columns):
    return 1.0

def short(completions, **columns):
    return [1.0] * (len(completions) - 1)

def hang(completions, **columns):
    time.sleep(60)

def fail(completions, **columns):
    raise KeyError("gold")

def odd(completions, **columns):
    return [None, float("nan"), float("inf"), "text", True]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "r.py").write_text(SOURCE)
    (tmp_path / "helper.py").write_text("factor = 2\n")
    return tmp_path


def make(folder: Path, function: str, **options: object) -> UserFunction:
    return UserFunction(base_dir=folder, file="r.py", function=function, **options)


def test_a_plain_trl_function_gives_its_values(folder: Path) -> None:
    verdicts = make(folder, "lengths").judge_batch(["a", "bb"], [{"prompt": "p"}] * 2)
    assert [verdict.value for verdict in verdicts] == [2.0, 4.0]


def test_functions_for_messages_get_messages(folder: Path) -> None:
    assert make(folder, "spoken", messages=True)(["3", [{"role": "assistant", "content": "4"}]]) == [3.0, 4.0]


@pytest.mark.parametrize(("function", "message"), [("scalar", "returned one float"), ("short", "1 values, expected 2")])
def test_wrong_shapes_are_refused(folder: Path, function: str, message: str) -> None:
    with pytest.raises(RewardBug, match=message):
        make(folder, function).judge_batch(["a", "b"], [{}, {}])


def test_a_function_that_hangs_is_stopped_and_told(folder: Path) -> None:
    verdicts = make(folder, "hang", time_limit_s=0.2).judge_batch(["a", "b"], [{}, {}])
    assert all(verdict.is_bug for verdict in verdicts)
    assert "did not return within 0.4 s for 2 completions" in verdicts[0].reason


def test_an_exception_is_a_bug_with_its_name(folder: Path) -> None:
    part = RewardPart("mine", "python", options={"file": "r.py", "function": "fail"})
    composite = Composite.build([part], folder)
    assert "KeyError" in composite.score(["a"], [{}])[0].parts["mine"].reason
    assert composite.bugs == {"mine": 1}


def test_each_odd_value_has_its_meaning(folder: Path) -> None:
    verdicts = make(folder, "odd").judge_batch(list("abcde"), [{}] * 5)
    assert [verdict.is_bug for verdict in verdicts] == [False, True, True, True, False]
    assert [verdict.value for verdict in verdicts] == [None, None, None, None, 1.0]


def test_what_cannot_be_loaded_is_an_error_before_the_first_score(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no function 'lenghts'"):
        make(folder, "lenghts")
    with pytest.raises(ConfigError, match="does not exist"):
        UserFunction(base_dir=folder, file="none.py")


def test_columns_that_cannot_cross_are_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match="isolated"):
        try:
            make(folder, "lengths").judge_batch(["a"], [{"prompt": "p", "x": object()}])
        except ConfigError as error:
            raise ConfigError(str(error.hint)) from None


def entry(answer: str = "10") -> dict[str, object]:
    return {"question": "4 + 6", "answer": answer, "metadata": {"source_dataset": "chain_sum"}}


@pytest.mark.slow  # importing reasoning-gym takes 3 s for each task
def test_a_scorer_judges_the_stated_answer_and_not_the_text_around_it() -> None:
    pytest.importorskip("reasoning_gym")
    reward = ReasoningGym(dataset="chain_sum")
    texts = ["10", "The answer is 10.", "<answer>10</answer>", "banana", "", "9", "1 2 3 4 5 6 7 8 9 10"]
    values = [verdict.value for verdict in reward.judge_batch(texts, [entry()] * len(texts))]
    reward.close()
    assert values == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.slow  # importing reasoning-gym takes 3 s for each task
def test_a_scorer_that_raises_is_a_bug_unless_unreadable_counts_as_wrong() -> None:
    pytest.importorskip("reasoning_gym")
    row = {"question": "", "answer": "3 × 37", "metadata": {"number": 111, "factors": [3, 37]}}
    strict = ReasoningGym(dataset="prime_factorization")
    assert strict.judge("banana", row).is_bug
    assert strict.judge("The answer is 3 × 37.", row).value == 1.0
    lenient = ReasoningGym(dataset="prime_factorization", unreadable_is_wrong=True)
    assert lenient.judge("banana", row).value == 0.0
    strict.close()
    lenient.close()


@pytest.mark.slow  # importing reasoning-gym takes 3 s for each task
def test_a_scorer_that_pays_for_junk_is_refused() -> None:
    pytest.importorskip("reasoning_gym")
    row = {"question": "", "answer": "True", "metadata": {}}
    with pytest.raises(ConfigError, match="gives 1 to the answer 'banana'"):
        ReasoningGym(dataset="game_of_life_halting").judge("True", row)


@pytest.mark.slow  # importing reasoning-gym takes 3 s for each task
def test_an_unknown_task_names_the_nearest() -> None:
    pytest.importorskip("reasoning_gym")
    with pytest.raises(ConfigError, match="did you mean 'chain_sum'"):
        ReasoningGym(dataset="chain_sums").judge("1", entry())


@pytest.mark.cases
@pytest.mark.slow
def test_no_scorer_of_the_cases_pays_for_junk_through_our_reward(cases_dir: Path) -> None:
    """Slow: importing reasoning-gym takes 3 s for each task."""
    gym = pytest.importorskip("reasoning_gym")
    lines = (cases_dir / "data" / "reasoning_gym_scorer_outputs.jsonl").read_text().splitlines()
    junk = ["banana", "0", "", "  ", "The answer is not known."]
    for task in sorted({json.loads(line)["task"] for line in lines}):
        rows = [dict(one) for one in gym.create_dataset(task, size=2, seed=3)]
        reward = ReasoningGym(dataset=task, unreadable_is_wrong=True)
        for row in rows:
            wrong = [text for text in junk if text.strip() != str(row["answer"])]
            try:
                verdicts = reward.judge_batch(wrong, [row] * len(wrong))
            except ConfigError as error:
                assert "gives 1 to the answer 'banana'" in str(error)
                continue
            assert {verdict.value for verdict in verdicts} == {0.0}, task
        reward.close()


def test_rows_that_cannot_cross_are_named_by_column_before_anything_is_scored(folder: Path) -> None:
    rows = [{"prompt": "p", "day": "2024-02-01"}, {"prompt": "p", "day": date(2024, 2, 1)}]
    reward = make(folder, "fail")
    reward.check_rows(rows[:1])  # what the function does with a completion is not judged here
    with pytest.raises(ConfigError, match=r"column 'day' cannot be sent there: .*date is not JSON") as caught:
        reward.check_rows(rows)
    assert "isolated = false" in str(caught.value.hint)
    (folder / "alone.py").write_text("def reward(completions, day, **_):\n    return [None] * len(day)\n")
    UserFunction(base_dir=folder, file="alone.py", isolated=False).check_rows(rows)


@pytest.mark.parametrize("kind", ["exact", "math"])
def test_a_column_that_a_verifier_lacks_is_named_before_anything_is_scored(kind: str, tmp_path: Path) -> None:
    composite = Composite.build([RewardPart("right", kind)], tmp_path)
    composite.check_rows([{"prompt": "p", "answer": "3"}])
    with pytest.raises(ConfigError, match="no column 'answer'"):
        composite.check_rows([{"prompt": "p", "answr": "3"}])
    composite.close()


@pytest.mark.parametrize("isolated", [True, False], ids=["apart", "in this process"])
@pytest.mark.parametrize("named", ["trainer_state", "log_extra=None", "*, log_metric", "environments"])
def test_a_function_that_asks_for_the_trainer_is_refused_when_it_is_loaded(
    tmp_path: Path, named: str, isolated: bool
) -> None:
    (tmp_path / "r.py").write_text(f"def score(completions, {named}, **columns):\n    return [0.0]\n")
    argument = named.removeprefix("*, ").partition("=")[0]
    with pytest.raises(ConfigError, match=f"score asks for {argument}, which is not passed") as caught:
        UserFunction(base_dir=tmp_path, file="r.py", function="score", isolated=isolated)
    assert "weight = 0" in str(caught.value.hint)


def test_what_the_trainer_hands_over_is_left_out_for_a_function_that_takes_anything(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "def score(completions, **rest):\n    return [float(len(rest))] * len(completions)\n"
    )
    reward = UserFunction(base_dir=tmp_path, file="r.py", function="score")
    given = {"trainer_state": object(), "log_extra": print, "log_metric": print, "answer": ["1"]}
    assert reward(["a"], **given) == [1.0]
