"""The labelled sets behind score_rewards: each function scores one kind of file with the shipped rewards.

In:  rows of a file. Out: `SetResult`: how many verdicts agree with the labels, and the rows that do not.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _code_mutants import killed, mutants, whole_program
from _schema_instances import Maker, NoInstance

from spark_rl.rewards import JsonSchema, MathAnswer, ToolCall
from spark_rl.rewards.math_reward import gold_answer
from spark_rl.rewards.quantity import parse_quantity

Row = dict[str, Any]
MUTANTS_PER_PROBLEM = 6


@dataclass(frozen=True)
class SetResult:
    """Agreement on one set."""

    name: str
    num_rows: int
    misses: tuple[str, ...]

    @property
    def percent(self) -> float | None:
        """Two decimals, rounded down, so that 100 means all."""
        if not self.num_rows:
            return None
        return int(10000 * (self.num_rows - len(self.misses)) / self.num_rows) / 100


def read_jsonl(path: Path) -> list[Row]:
    """Rows of a JSONL file; a BOM is accepted and a broken line is named."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                sys.exit(f"error: {path}, line {number}: {error}")
    return rows


def score_gsm8k(rows: Sequence[Row]) -> SetResult:
    """Completions of several models with `is_correct`."""
    cases = [
        (
            solution["solution"],
            {"answer": row["ground_truth"], "prompt": row.get("question", "")},
            solution["is_correct"],
        )
        for row in rows
        for solution in row.values()
        if isinstance(solution, dict) and "is_correct" in solution
    ]
    return _math("gsm8k", [(text, row, bool(label)) for text, row, label in cases], MathAnswer())


def score_gsm8k_golds(rows: Sequence[Row]) -> SetResult:
    """Every gold is read as a number."""
    golds = [str(row.get("answer", row.get("ground_truth"))) for row in rows]
    misses = [gold[-60:] for gold in golds if (read := gold_answer(gold)) is None or parse_quantity(read) is None]
    return SetResult("gsm8k golds", len(golds), tuple(misses))


def score_math(rows: Sequence[Row], mislabelled: Mapping[str, str]) -> dict[str, SetResult]:
    """Pairs of gold and prediction with `label_correct`: all of them, without those with a wrong label, and stricter.

    The labels of this set take 62.5 and 0.625 as one answer, because its golds have lost their percent signs; the reward
    is scored with the option for such data, and "strict" is the same without it.
    """
    cases = [(rf"\boxed{{{row['pred']}}}", {"answer": row["gold"]}, bool(row["label_correct"])) for row in rows]
    unsigned = MathAnswer(percent="either")
    strict = MathAnswer(percent="signed")
    strict.known = unsigned.known  # what algebra has said does not depend on percent signs
    everything = _math("math", cases, unsigned)
    listed = [pair_key(row["gold"], row["pred"]) in mislabelled for row in rows]
    unlisted = [case for case, is_listed in zip(cases, listed, strict=True) if not is_listed]
    return {
        "math_pct": everything,
        "math_strict_pct": _math("math, percent signs needed", cases, strict),
        "math_unlisted_pct": _math("math without mislabelled", unlisted, unsigned),
    }


def pair_key(gold: str, pred: str) -> str:
    """How the list of mislabelled rows names a pair: by content, whatever file or order it comes in."""
    return hashlib.sha256(f"{gold}\x1f{pred}".encode()).hexdigest()[:16]


def score_plain(rows: Sequence[Row]) -> SetResult:
    """Answers in many wordings, with what a person would say."""
    cases = [(row["completion"], {"answer": row["gold"]}, bool(row["a_person_would_say_correct"])) for row in rows]
    return _math("plain", cases, MathAnswer())


def _math(name: str, cases: Sequence[tuple[str, Row, bool]], reward: MathAnswer) -> SetResult:
    verdicts = reward.judge_batch([text for text, _, _ in cases], [row for _, row, _ in cases])
    reward.close()
    misses = [
        f"label {label}, judged {verdict.value}: {verdict.reason}"
        for (_, _, label), verdict in zip(cases, verdicts, strict=True)
        if (verdict.value == 1.0) != label
    ]
    return SetResult(name, len(cases), tuple(misses))


def score_tool_calls(answers: Sequence[Row]) -> tuple[SetResult, SetResult]:
    """Accepted calls in every notation, and calls with one thing changed."""
    reward = ToolCall()
    accepted = [(text, row) for row in answers for text in accepted_texts(row["ground_truth"])]
    changed = [(text, row) for row in answers for text in changed_texts(row["ground_truth"])]
    refused = [
        f"{text[:120]}: {verdict.reason}" for text, row in accepted if (verdict := reward.judge(text, row)).value != 1
    ]
    passed = [text[:160] for text, row in changed if reward.judge(text, row).value != 0]
    return SetResult("bfcl", len(accepted), tuple(refused)), SetResult("bfcl mutants", len(changed), tuple(passed))


def accepted_texts(truth: Sequence[Mapping[str, Mapping[str, list[Any]]]]) -> Iterator[str]:
    """Every accepted value of every argument once, optional arguments with and without, in all notations."""
    calls = [(name, arguments) for one in truth for name, arguments in one.items()]
    first = [(name, _first_values(arguments)) for name, arguments in calls]
    for notation in NOTATIONS:
        yield notation(first)
    for index, (name, arguments) in enumerate(calls):
        for argument, values in arguments.items():
            for value in values:
                chosen = dict(first[index][1])
                if value == "":
                    chosen.pop(argument, None)
                else:
                    chosen[argument] = value
                yield hermes([*first[:index], (name, chosen), *first[index + 1 :]])


def changed_texts(truth: Sequence[Mapping[str, Mapping[str, list[Any]]]]) -> Iterator[str]:
    """Calls with one thing wrong."""
    calls = [(name, arguments) for one in truth for name, arguments in one.items()]
    first = [(name, _first_values(arguments)) for name, arguments in calls]
    name, values = first[0]
    rest = first[1:]
    yield hermes([(name + "_x", values), *rest])
    yield hermes([(name[1:], values), *rest])
    yield hermes([(name, {**values, "unexpected": 1}), *rest])
    yield hermes([*first, first[0]])
    yield hermes([])
    yield "I would call " + name + " here."
    for argument, accepted in calls[0][1].items():
        if "" not in accepted:
            yield hermes([(name, {key: value for key, value in values.items() if key != argument}), *rest])
        for value in wrong_values(values.get(argument, next(one for one in accepted if one != ""))):
            if not any(_equal(value, one) for one in accepted):
                yield hermes([(name, {**values, argument: value}), *rest])


def wrong_values(value: Any) -> list[Any]:
    """Values near the right one that are wrong."""
    if isinstance(value, bool):
        return [not value, str(value), int(value)]
    if isinstance(value, int | float):
        return [value + 1, -value - 1, str(value), [value], None]
    if isinstance(value, str):
        return [value + " x", value[:-1], 0, [value], None, {"value": value}]
    if isinstance(value, list):
        return [value[:-1], [*value, 1], "x", None]
    return [None, "x", {**value, "unexpected": 1}] if isinstance(value, dict) else ["x"]


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def _first_values(arguments: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {
        name: next(value for value in values if value != "") for name, values in arguments.items() if values != [""]
    }


Calls = Sequence[tuple[str, Mapping[str, Any]]]


def hermes(calls: Calls) -> str:
    bodies = [json.dumps({"name": name, "arguments": values}) for name, values in calls]
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


def llama_json(calls: Calls) -> str:
    return "; ".join(json.dumps({"name": name, "parameters": values}) for name, values in calls)


def llama_tagged(calls: Calls) -> str:
    return "".join(f"<function={name}>{json.dumps(values)}</function>" for name, values in calls)


def pythonic(calls: Calls) -> str:
    return (
        "[" + ", ".join(f"{name}({', '.join(f'{k}={v!r}' for k, v in values.items())})" for name, values in calls) + "]"
    )


def qwen_coder(calls: Calls) -> str:
    def parameter(key: str, value: Any) -> str:
        return f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"

    return "\n".join(
        f"<tool_call>\n<function={name}>\n{''.join(itertools.starmap(parameter, values.items()))}</function>\n</tool_call>"
        for name, values in calls
    )


NOTATIONS = (hermes, llama_json, llama_tagged, pythonic, qwen_coder)


def score_schemas(rows: Sequence[Row]) -> SetResult | None:
    """Three generated instances per usable schema, judged by jsonschema-rs; None where that is not installed."""
    try:
        import jsonschema_rs
    except ImportError:
        print("schema: jsonschema-rs is not installed (scripts/setup --dev)", file=sys.stderr)
        return None
    reward = JsonSchema(column="schema")
    cases: list[tuple[str, Any, bool]] = []
    misses: list[str] = []
    for row in rows:
        schema = json.loads(row["schema"]) if isinstance(row["schema"], str) else row["schema"]
        source = str(row.get("source", "schema"))
        try:
            judge = jsonschema_rs.validator_for(schema)
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            print(f"schema: {source} is not usable: {str(error).splitlines()[0][:100]}", file=sys.stderr)
            continue
        maker = Maker(schema, judge.is_valid)
        try:
            valid = maker.valid()
            instances = [valid, maker.broken(valid), maker.wrong_shape(valid)]
        except NoInstance as error:
            print(f"schema: {source}: {error}; generic instances are used", file=sys.stderr)
            instances = [{}, [], "text"]
        cases += [(json.dumps(instance), schema, judge.is_valid(instance)) for instance in instances]
    verdicts = reward.judge_batch([text for text, _, _ in cases], [{"schema": schema} for _, schema, _ in cases])
    reward.close()
    for (text, _, expected), verdict in zip(cases, verdicts, strict=True):
        if verdict.value != float(expected):
            misses.append(f"{text[:80]}: expected {float(expected)}, judged {verdict.value}: {verdict.reason}")
    return SetResult("schema", len(cases), tuple(misses))


def score_humaneval(rows: Sequence[Row]) -> tuple[SetResult, SetResult]:
    """Canonical solutions, and the one-token mutants of them that the tests kill without a sandbox."""
    from spark_rl.rewards import UnitTests

    reward = UnitTests(time_limit_seconds=5)
    try:
        verdicts = reward.judge_batch([row["canonical_solution"] for row in rows], rows)
        failed = [f"{row['task_id']}: {v.reason}" for row, v in zip(rows, verdicts, strict=True) if v.value != 1.0]
        changed = [
            (row, body[len(row["prompt"]) :])
            for row in rows
            for body in mutants(row["prompt"] + row["canonical_solution"], 4 * MUTANTS_PER_PROBLEM)
            if body.startswith(row["prompt"])
        ]
        kept = [
            pair
            for _, group in itertools.groupby(changed, lambda pair: pair[0]["task_id"])
            for pair in list(group)[:MUTANTS_PER_PROBLEM]
        ]
        dead = killed([whole_program(row, body) for row, body in kept])
        to_kill = [pair for pair, is_dead in zip(kept, dead, strict=True) if is_dead]
        judged = reward.judge_batch([body for _, body in to_kill], [row for row, _ in to_kill])
        passed = [
            f"{row['task_id']}: {body!r}" for (row, body), v in zip(to_kill, judged, strict=True) if v.value != 0.0
        ]
    finally:
        reward.close()
    return SetResult("humaneval", len(rows), tuple(failed)), SetResult("humaneval mutants", len(to_kill), tuple(passed))
