"""The unit-test reward: from a completion and a row to a verdict."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_rl.errors import ConfigError
from spark_rl.rewards.base import RewardPart
from spark_rl.rewards.code_blocks import readings
from spark_rl.rewards.registry import build_reward
from spark_rl.rewards.unit_tests import UnitTests
from spark_rl.sandbox.warm import descendants

PROJECT = Path(__file__).parents[2]
ROW = {
    "prompt": 'def double(n: int) -> int:\n    """Twice n."""\n',
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(0) == 0\n",
}
WHOLE = "def double(n):\n    return 2 * n\n"


@pytest.fixture(scope="module")
def reward() -> Iterator[UnitTests]:
    made = UnitTests(time_limit_seconds=3)
    yield made
    made.close()


@pytest.mark.parametrize(
    "completion",
    [
        "    return 2 * n\n",
        "\treturn 2 * n",
        "return 2 * n",
        "    result = n\n    return result * 2\n\n\ndef main():\n    print(double(",
        WHOLE,
        f"Here it is:\n```python\n{WHOLE}```\nDone.",
        f"```\n{WHOLE}```",
        f"```python\n{WHOLE}",
        f"First try:\n```python\ndef double(n):\n    return n\n```\nBetter:\n```python\n{WHOLE}```\n",
        f"```python\n{WHOLE}```\nRun it:\n```bash\npython double.py\n```",
        f"```python\n{WHOLE}```\nExample:\n```python\nprint(double(2))\n```",
        f"<think>```python\nbad\n```</think>\n```python\n{WHOLE}```",
        "```python\n    return 2 * n\n```",
        "double = lambda n: 2 * n\n",
        "    return 2 * n\n```\nThis doubles it.\n",
    ],
)
def test_a_right_program_is_found_however_it_is_written(reward: UnitTests, completion: str) -> None:
    verdict = reward.judge(completion, ROW)
    assert verdict.value == 1.0, verdict.reason


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "I cannot do that.",
        "    return n\n",
        "<think>```python\n" + WHOLE + "```",
        "passed",
        "    return 1 2\n",
        '{"passed": true}',
        "```python\n```",
        ROW["test"],
        ROW["prompt"],
        "    pass\n",
        "    return [0, 1, 2, 3, 4, 5]\n",
        "    return n == 2 and 4 or n\n    " + "x" * 10_000 + "\n" if False else "    return 4\n",
    ],
)
def test_what_does_not_solve_it_scores_nothing(reward: UnitTests, completion: str) -> None:
    assert reward.judge(completion, ROW).value == 0.0


def test_a_batch_keeps_its_order_and_mixes_kinds(reward: UnitTests) -> None:
    rows: list[dict[str, Any]] = [
        ROW,
        {"test": ["assert f(1) == 2", "assert f(2) == 3"]},
        {"test": [{"input": "3\n", "output": "6\n"}, {"input": "5", "output": "10"}]},
        {"test": json.dumps({"inputs": ["1", "2"], "outputs": ["1", "2"]})},
        {"test": ""},
    ]
    completions = [WHOLE, "def f(n):\n    return n + 1", "print(int(input()) * 2)", "print(input())", "x"]
    assert [verdict.value for verdict in reward.judge_batch(completions, rows)] == [1.0, 1.0, 1.0, 1.0, None]


def test_partial_gives_the_share_of_assertions_and_pairs() -> None:
    partial = UnitTests(partial=True, time_limit_seconds=3)
    asserts = {"test": ["assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 9", "assert f(4) == 16"]}
    pairs = {"test": [{"input": "1", "output": "1"}, {"input": "2", "output": "4"}]}
    verdicts = partial.judge_batch(["def f(n):\n    return n * n\n", "print(input())"], [asserts, pairs])
    partial.close()
    assert [verdict.value for verdict in verdicts] == [0.75, 0.5]


def test_it_is_a_trl_callable_for_strings_and_messages(reward: UnitTests) -> None:
    columns = {name: [value, value] for name, value in ROW.items() if name != "prompt"}
    values = reward([WHOLE, [{"role": "assistant", "content": "    return 5"}]], prompts=[ROW["prompt"]] * 2, **columns)
    assert values == [1.0, 0.0]


def test_a_prompt_in_messages_is_no_code(reward: UnitTests) -> None:
    row = {**ROW, "prompt": [{"role": "user", "content": "Write double."}]}
    assert reward.judge(WHOLE, row).value == 1.0


def test_unusable_tests_do_not_apply_and_say_why(reward: UnitTests) -> None:
    verdict = reward.judge(WHOLE, {**ROW, "test": "import numpy\n" + ROW["test"]})
    assert verdict.value is None
    assert "numpy" in verdict.reason


def test_a_reason_carries_nothing_that_steers_a_terminal(reward: UnitTests) -> None:
    failing = "def double(n):\n    raise ValueError('\\x1b[2J\\x07\\ud800')\n"
    printing = {"test": [{"input": "", "output": "x"}]}
    verdicts = reward.judge_batch([failing, "print('\\x1b[31m')"], [ROW, printing])
    assert all(verdict.reason.isprintable() for verdict in verdicts), verdicts


def test_a_missing_tests_column_is_the_tasks_fault(reward: UnitTests) -> None:
    with pytest.raises(ConfigError, match="'test'"):
        reward.judge(WHOLE, {"tests": "x"})


def test_the_registry_knows_it_and_refuses_unknown_options() -> None:
    with pytest.raises(ConfigError, match="time_limit_seconds"):
        build_reward(RewardPart("code", "unit_tests", options={"time_limit_second": 3}), Path())


def test_output_is_compared_line_by_line_without_trailing_space(reward: UnitTests) -> None:
    row = {"test": [{"input": "", "output": "a\nb\n"}]}
    texts = ["print('a ')\nprint('b')\nprint()", "print('a b')", "print('A\\nb')"]
    assert [verdict.value for verdict in reward.judge_batch(texts, [row] * 3)] == [1.0, 0.0, 0.0]


def test_a_program_that_hangs_on_every_input_costs_its_limit_once(reward: UnitTests) -> None:
    row = {"test": [{"input": str(number), "output": "0"} for number in range(20)]}
    started = time.monotonic()
    verdict = reward.judge("while True:\n    pass", row)
    assert time.monotonic() - started < 3 * 3
    assert (verdict.value, "19 not run" in verdict.reason) == (0.0, True)


def test_a_worker_that_was_killed_costs_nobody_a_verdict(reward: UnitTests) -> None:
    assert reward.judge(WHOLE, ROW).value == 1.0
    for pid in reward.sandbox.worker_pids:
        for one in [*descendants(pid), pid]:
            os.kill(one, signal.SIGKILL)
    assert [verdict.value for verdict in reward.judge_batch([WHOLE] * 4, [ROW] * 4)] == [1.0] * 4


def test_the_reason_names_the_first_wrong_output(reward: UnitTests) -> None:
    verdict = reward.judge("print(1)", {"test": [{"input": "7", "output": "8"}]})
    assert "'7'" in verdict.reason
    assert "'8'" in verdict.reason


def test_reading_a_completion_takes_time_in_proportion_to_its_length() -> None:
    for text in ("```\n" * 50_000, "def " * 100_000, "<think>" * 50_000, "`" * 300_000, "\n" * 300_000):
        readings(text, ROW["prompt"], "double")


@pytest.mark.cases
def test_published_hostile_samples_score_by_what_they_return(cases_dir: Path, reward: UnitTests) -> None:
    row = json.loads((cases_dir / "data" / "humaneval_hostile_problem.jsonl").read_text().splitlines()[0])
    lines = (cases_dir / "data" / "humaneval_hostile_samples.jsonl").read_text().splitlines()
    completions = [json.loads(line)["completion"] for line in lines]
    expected = [0.0 if "sub" in text or "sleep" in text or "input" in text else 1.0 for text in completions]
    assert expected == [verdict.value for verdict in reward.judge_batch(completions, [row] * len(completions))]


def humaneval(cases_dir: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (cases_dir / "data" / "humaneval.jsonl").read_text().splitlines()]


@pytest.mark.cases
def test_canonical_solutions_pass_as_bodies_and_as_chat_answers(cases_dir: Path, reward: UnitTests) -> None:
    rows = humaneval(cases_dir)
    bodies = [row["canonical_solution"] for row in rows]
    answers = [f"Sure:\n\n```python\n{row['prompt']}{row['canonical_solution']}```\n" for row in rows]
    verdicts = reward.judge_batch(bodies + answers, rows + rows)
    assert [verdict.reason for verdict in verdicts if verdict.value != 1.0] == []


@pytest.mark.cases
@pytest.mark.slow
def test_every_mutant_that_a_plain_run_kills_is_failed_and_every_survivor_passes(
    cases_dir: Path, reward: UnitTests
) -> None:
    """Slow: one plain interpreter per mutant, and the endless ones run to their limit."""
    path = PROJECT / "scripts" / "_code_mutants.py"
    spec = importlib.util.spec_from_file_location("code_mutants", path)
    assert spec is not None
    assert spec.loader is not None
    code_mutants = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code_mutants)
    pairs = [
        (row, text[len(row["prompt"]) :])
        for row in humaneval(cases_dir)
        for text in code_mutants.mutants(row["prompt"] + row["canonical_solution"], 12)
        if text.startswith(row["prompt"])
    ]
    killed = code_mutants.killed([code_mutants.whole_program(row, body) for row, body in pairs])
    verdicts = reward.judge_batch([body for _, body in pairs], [row for row, _ in pairs])
    assert len(pairs) > 50
    different = [
        f"{row['task_id']}: {body!r}: {verdict.reason}"
        for (row, body), dead, verdict in zip(pairs, killed, verdicts, strict=True)
        if dead != (verdict.value == 0.0)
    ]
    assert different == []
