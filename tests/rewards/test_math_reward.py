"""The math reward: which answers it reads, what counts as equal, and what earns nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from spark_rl.rewards import MathAnswer
from spark_rl.rewards.math_reward import gold_answer


@pytest.fixture(scope="module")
def math_answer() -> Iterator[MathAnswer]:
    reward = MathAnswer(time_limit_s=2.0)
    yield reward
    reward.close()


def value(reward: MathAnswer, gold: str, completion: str, prompt: str = "") -> float | None:
    return reward.judge(completion, {"answer": gold, "prompt": prompt}).value


@pytest.mark.parametrize(
    "completion",
    [
        "18",
        "18.",
        "$18",
        "18 dollars",
        "The answer is 18.",
        "The answer is $18$.",
        "**Final Answer**: 18",
        "Answer: 18",
        "Answer:\n18",
        "A: 18",
        "#### 18",
        "<answer>18</answer>",
        r"<answer>\boxed{18}</answer>",
        r"\boxed{18}",
        r"\boxed{18",
        r"\boxed{18 \text{ dollars}}",
        r"\boxed{\$18}",
        r"\boxed{x = 18}",
        r"It is \boxed{17}. No, \boxed{18}",
        "She sells 9 eggs at $2 each, so she makes 9 * 2 = $18.",
        "She makes 18 dollars every day at the farmers' market.",
        "The total is 18",
        "The answer is 18, not 20.",
        "She does not eat two of them. So she makes $18.",
        "The answer is eighteen.",
        "<answer>The answer is 18</answer>",
        "Final Answer: The final answer is $18$. I hope it is correct.",
        "The answer is 18, because 9 times 2 is 18.",
        "<think>It is \\boxed{3}?</think>\nThe answer is 18.",
    ],
)
def test_a_right_number_is_read_in_every_usual_wording(math_answer: MathAnswer, completion: str) -> None:
    assert value(math_answer, "18", completion) == 1.0


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("1,800", "1800"),
        ("1800", r"1{,}800"),
        ("-3", "−3"),
        (r"50\%", "0.5"),
        ("0.5", r"50\%"),
        ("60", "60%"),
        ("1.07e16", r"1.07 \times 10^{16}"),
        (r"\frac{7}{2}", "3.5"),
        (r"\frac{7}{2}", r"3\frac{1}{2}"),
        (r"\frac{7}{2}", "7/2"),
        ("3.5", "14/4"),
        ("(1,2)", "(1, 2)"),
        (r"$\{1,2\}$", r"\{2,1\}"),
        ("1,3,9,11", "11, 9, 3 and 1"),
        (r"[-1,-\frac{1}{2}]", "[-1,-0.5]"),
        (r"(-\infty,4)", r"x \in (-\infty, 4)"),
        (r"(0,1)\cup(2,3)", r"(2,3) \cup (0,1)"),
        (r"\sqrt{8}", r"2\sqrt{2}"),
        (r"3\pm\sqrt{2}", r"3-\sqrt{2}, 3+\sqrt{2}"),
        ("x^2+2x+1", "(x+1)^2"),
        (r"\begin{pmatrix}2\\-1\end{pmatrix}", r"\begin{pmatrix} 2 \\ -1.0 \end{pmatrix}"),
        ("even", r"\text{even}"),
        ("no solution", "No solution"),
        ("B", "(B)"),
        ("B", "B. the second one"),
        ("B", "b"),
        ("no solution", r"\emptyset"),
        (r"(-\infty,3)", "x<3"),
        (r"\frac{1}{3}", r"0.\overline{3}"),
        ("1024", "2^{10}"),
        (r"\pi", "pi"),
        ("4210_{5}", "4210_5"),
        ("5 km", "5000 m"),
        ("$1.80", "180 cents"),
        ("0.333333", r"\frac{1}{3}"),
    ],
)
def test_two_spellings_of_one_answer_are_equal(math_answer: MathAnswer, gold: str, said: str) -> None:
    assert value(math_answer, gold, rf"\boxed{{{said}}}") == 1.0


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("18", "18.5"),
        ("18", "1800"),
        ("18", "0.18"),
        ("5,15", "515"),
        ("1,2", "12"),
        ("1,2,3", "1,2"),
        ("(1,2)", "(2,1)"),
        ("[0,1)", "(0,1]"),
        ("4210_{5}", "4210"),
        (r"\text{even}", r"\text{odd}"),
        ("no solution", "42"),
        ("B", "A or B"),
        ("B", "A) or B)"),
        ("5 km", "5 m"),
        ("98721", "98730"),
        ("0.53", "0.533"),
        ("R", "r"),
        ("mgR", "mgr"),
        ("18", "{1,2,18}"),
        ("18", "17 or 18"),
        ("12", "3*4"),
        ("12", "84/7"),
        ("12", r"\frac{84}{7}"),
    ],
)
def test_two_different_answers_are_not_equal(math_answer: MathAnswer, gold: str, said: str) -> None:
    assert value(math_answer, gold, rf"\boxed{{{said}}}") == 0.0


@pytest.mark.parametrize(
    "completion",
    [
        "The answer is not 18.",
        r"It is not \boxed{18}.",
        "<answer>not 18</answer>",
        "18 is wrong",
        "It isn't 18.",
        r"<think>\boxed{18}",
        " ".join(map(str, range(1, 19))),
        "\n".join(map(str, range(1, 19))),
        " ".join(rf"\boxed{{{number}}}" for number in range(1, 19)),
        "The answer is 16 or 17 or 18.",
        "<answer>16, 17, 18</answer>",
    ],
)
def test_denied_unfinished_and_listed_answers_earn_nothing(math_answer: MathAnswer, completion: str) -> None:
    assert value(math_answer, "18", completion) == 0.0


def test_the_prompt_or_an_expression_of_it_is_no_answer(math_answer: MathAnswer) -> None:
    prompt = "Compute 9*2 and put the result in a box. For example, a result of 18 is written as 18."
    assert value(math_answer, "18", prompt, prompt) == 0.0
    assert value(math_answer, "18", prompt + "\n" + prompt, prompt) == 0.0
    assert (
        value(math_answer, r"\sqrt{2}+1", r"\boxed{\frac{1}{\sqrt{2}-1}}", r"Simplify $\frac{1}{\sqrt{2}-1}$.") == 0.0
    )


def test_a_fraction_that_the_question_mentions_may_be_the_answer(math_answer: MathAnswer) -> None:
    assert value(math_answer, r"\frac{1}{2}", r"\boxed{1/2}", "She eats 1/2 of it; what fraction is left over?") == 1.0


def test_a_row_without_gold_does_not_apply(math_answer: MathAnswer) -> None:
    assert value(math_answer, "", r"\boxed{42}") is None


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("She sells 9.\n#### 1,800", "1,800"),
        ("So 4 * 5 = 20.\nA: 20", "20"),
        (r"Thus \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("-3", "-3"),
    ],
)
def test_the_gold_is_found_in_a_worked_solution(column: str, expected: str) -> None:
    assert gold_answer(column) == expected


def test_a_list_in_a_sentence_is_read_whole(math_answer: MathAnswer) -> None:
    assert value(math_answer, "3,5,7", "The answer is 3, 5, and 7.") == 1.0
    assert value(math_answer, "3,5", "The answer is 3, 5, and 7.") == 0.0


def test_several_golds_are_alternatives(math_answer: MathAnswer) -> None:
    assert math_answer.judge(r"\boxed{4}", {"answer": ["3", "4"]}).value == 1.0


def test_percent_signs_may_be_waived_for_data_that_lost_them() -> None:
    assert value(MathAnswer(), "62.5", r"\boxed{0.625}") == 0.0
    assert value(MathAnswer(percent="either"), "62.5", r"\boxed{0.625}") == 1.0


def test_a_tolerance_is_an_option() -> None:
    assert value(MathAnswer(), "9.81", r"\boxed{9.8}") == 0.0
    assert value(MathAnswer(relative_tolerance=0.01), "9.81", r"\boxed{9.8}") == 1.0


def test_numbers_are_judged_at_more_than_2000_a_second_of_one_core() -> None:
    reward = MathAnswer()
    completions = [f"The answer is ${number:,} dollars." for number in range(2000)]
    rows = [{"answer": f"So it is.\n#### {number}"} for number in range(2000)]
    started = time.process_time()
    verdicts = reward.judge_batch(completions, rows)
    seconds = time.process_time() - started
    assert all(verdict.value == 1.0 for verdict in verdicts)
    assert 2000 / seconds >= 2000
