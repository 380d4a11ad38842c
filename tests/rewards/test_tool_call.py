"""The tool-call reward: notations that are read, what is accepted, and that nothing is evaluated."""

from __future__ import annotations

import pytest

from spark_rl.rewards import ToolCall
from spark_rl.rewards.tool_text import find_calls

TRUTH = [{"math.area": {"base": [10], "height": [5, 5.5], "unit": ["cm", ""], "points": [[1.0, 2.0]]}}]
ARGUMENTS = '"base": 10, "height": 5, "points": [1, 2]'


def judge(completion: str, truth: object = TRUTH, **options: object) -> float | None:
    return ToolCall(**options).judge(completion, {"ground_truth": truth}).value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "completion",
    [
        f'<tool_call>\n{{"name": "math.area", "arguments": {{{ARGUMENTS}}}}}\n</tool_call>',
        f'Let me see.\n<tool_call>{{"arguments": {{{ARGUMENTS}}}, "name": "math.area"}}</tool_call>',
        f'<tool_call>{{"name": "math.area", "arguments": {{{ARGUMENTS}}}}}',
        "<tool_call>\n<function=math.area>\n<parameter=base>\n10\n</parameter>\n<parameter=height>\n5.5\n</parameter>\n"
        "<parameter=unit>\ncm\n</parameter>\n<parameter=points>\n[1.0, 2]\n</parameter>\n</function>\n</tool_call>",
        f"<function=math.area>{{{ARGUMENTS}}}</function>",
        f'{{"name": "math.area", "parameters": {{{ARGUMENTS}}}}}',
        f'<|python_tag|>{{"name": "math.area", "parameters": {{{ARGUMENTS}}}}}<|eom_id|>',
        f'```json\n[{{"name": "math.area", "arguments": {{{ARGUMENTS}}}}}]\n```',
        '{"name": "math.area", "arguments": "{\\"base\\": 10, \\"height\\": 5, \\"points\\": [1, 2]}"}',
        "[math.area(base=10, height=5, points=[1, 2])]",
        'math.area(points=(1.0, 2.0), height=5, base=10, unit="CM")',
        f'<think>area?</think><tool_call>{{"name": "math.area", "arguments": {{{ARGUMENTS}}}}}</tool_call>',
    ],
)
def test_every_notation_is_read(completion: str) -> None:
    assert judge(completion) == 1.0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('"base": 11, "height": 5, "points": [1, 2]', "'base' is 11"),
        ('"base": "10", "height": 5, "points": [1, 2]', "'base' is '10'"),
        ('"base": true, "height": 5, "points": [1, 2]', "'base' is True"),
        ('"base": 10, "points": [1, 2]', "'height' is missing"),
        ('"base": 10, "height": 5, "points": [2, 1]', "'points' is"),
        ('"base": 10, "height": 5, "points": [1, 2], "unit": "m"', "'unit' is 'm'"),
        ('"base": 10, "height": 5, "points": [1, 2], "extra": 1', "'extra' is not accepted"),
    ],
)
def test_each_difference_is_named(arguments: str, reason: str) -> None:
    completion = f'<tool_call>{{"name": "math.area", "arguments": {{{arguments}}}}}</tool_call>'
    verdict = ToolCall().judge(completion, {"ground_truth": TRUTH})
    assert verdict.value == 0.0
    assert reason in verdict.reason


def test_several_calls_pair_up_in_any_order_and_no_call_is_extra() -> None:
    truth = [{"f": {"x": [1, 2]}}, {"f": {"x": [1]}}]
    one, two = '<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>', "[f(x=2), f(x=1)]"
    assert judge(two, truth) == 1.0
    assert judge(one + one, truth) == 1.0
    assert judge(one, truth) == 0.0
    assert judge(one * 3, truth) == 0.0
    assert judge("[f(x=2), f(x=2)]", truth) == 0.0


def test_calling_nothing_is_right_only_where_nothing_is_to_be_called() -> None:
    assert judge("I cannot help with a tool here.", []) == 1.0
    assert judge("I cannot help with a tool here.") == 0.0
    assert judge("[f(x=1)]", []) == 0.0


def test_arguments_may_be_given_as_plain_values_or_json_text() -> None:
    assert judge("[f(x=1)]", '[{"name": "f", "arguments": {"x": 1}}]') == 1.0
    assert judge("[f(x=1)]", None) is None
    assert judge("[f(x=1)]", "not json") is None


def test_options_for_names_and_strings() -> None:
    truth = [{"a.b": {"x": ["New York"]}}]
    assert judge('[a_b(x="new  york")]', truth, dots_as_underscores=True) == 1.0
    assert judge('[a_b(x="new  york")]', truth) == 0.0
    assert judge('[a.b(x="new york")]', truth, strings="exact") == 0.0


@pytest.mark.parametrize(
    "completion",
    [
        "[f(x=__import__('os').system('true'))]",
        "[f(x={1, 2})]",
        "[f(x=1j)]",
        "[f(*[1])]",
        "[f(1)]",
        "[f(x=1, x=2)]",
        "[(lambda: 1)(x=1)]",
        "[f(x=" + "(" * 4000 + ")" * 4000 + ")]",
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "f", "name": "g"}</tool_call>',
        "<tool_call></tool_call> text" + "<function=f>" * 5000,
    ],
)
def test_what_is_no_plain_call_is_refused_and_never_evaluated(completion: str) -> None:
    assert judge(completion, [{"f": {"x": [1]}}]) == 0.0


def test_an_unfinished_thought_makes_no_call() -> None:
    assert find_calls("<think>[f(x=1)]").fault is not None
