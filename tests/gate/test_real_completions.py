"""The whole gate on completions of real models whose correctness people have labelled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_rl.gate import make_samples, read_samples, scoring_row, write_samples
from spark_rl.gate.alarms import find_alarms
from spark_rl.gate.exchange import export_rows, import_verdicts, to_jsonl
from spark_rl.gate.inspection import read_inspection
from spark_rl.rewards.composite import Composite

from .conftest import Bench, Said

MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")

TASK = """
[task]
name = "word-problems"
title = "Grade school word problems"
demo = true

[data]
train = "train.jsonl"
heldout_size = 2

[prompt]
template = "{question}"
chat = false

[[reward]]
name = "format"
kind = "regex"
means = "format"
weight = 0.2
pattern = '(?m)^A: .+$'
match = "search"

[[reward]]
name = "correct"
kind = "math"
means = "correct"
answer = "ground_truth"
"""


@pytest.mark.cases
def test_the_reward_agrees_with_the_labels_and_can_be_signed(bench: Bench, cases_dir: Path) -> None:
    pytest.importorskip("math_verify")
    lines = (cases_dir / "data" / "gsm8k_model_solutions.jsonl").read_text(encoding="utf-8").splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    kept = [{"question": row["question"], "ground_truth": row["ground_truth"]} for row in rows]
    (bench.folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    bench.task_file.write_text(TASK)
    run, solutions = bench.new_run(), {row["question"]: row for row in rows}
    examples = [example for example in bench.examples.train for _ in MODELS][:100]
    answers = [solutions[str(example.row["question"])][MODELS[index % 4]] for index, example in enumerate(examples)]
    said = [Said(answer["solution"], len(answer["solution"]) // 4) for answer in answers]
    composite = Composite(bench.task.build_rewards())
    scored = composite.score([one.text for one in said], [scoring_row(one, 1) for one in examples])
    composite.close()
    write_samples(run, make_samples(examples, said, scored), bench.fingerprint())
    assert not [alarm for alarm in find_alarms(read_samples(run)) if "failed" in alarm or "does not apply" in alarm]
    labels = {f"s{number:03d}": answer["is_correct"] for number, answer in enumerate(answers, start=1)}
    verdicts = [
        {**row, "verdict": "agree" if row["correct"] is labels[row["id"]] else "disagree", "reader": "script"}
        for row in export_rows(read_inspection(run))
    ]
    path = bench.folder / "labels.jsonl"
    path.write_text(to_jsonl(verdicts), encoding="utf-8")
    import_verdicts(run, path, bench.task)
    assert bench.sign(run).counts["agree"] == 100
