"""What a sign-off is bound to: every change that matters is named, and nothing else breaks it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_rl.errors import ConfigError
from spark_rl.gate.fingerprint import PACKAGE_ROOT, changes, is_rescorable

from .conftest import Bench, task_text

Change = Callable[[Bench], None]


def rewrite(name: str, old: str, new: str) -> Change:
    return lambda bench: bench.rewrite(name, lambda text: text.replace(old, new, 1))


def poke_weights(bench: Bench) -> None:
    """Another fine-tune: the same header and size, other numbers."""
    path = bench.model_dir / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[8192:] = bytes(255 - value for value in data[8192:])
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (rewrite("my_reward.py", "else 0.0", "else 0.1"), {"reward: correct"}),
        (rewrite("task.toml", "weight = 0.2", "weight = 0.3"), {"task file", "reward: format"}),
        (rewrite("task.toml", "fullmatch", "search"), {"task file", "reward: format"}),
        (rewrite("task.toml", "[[reward]]", "[scoring]\ngate_on_format = true\n\n[[reward]]"),
         {"task file", "reward: how parts combine"}),
        (rewrite("task.toml", "[task]", "# a remark\n[task]"), {"task file"}),
        (rewrite("task.toml", '"{question}"', '"Q: {question}"'), {"task file", "data"}),
        (rewrite("train.jsonl", '"answer": "3"', '"answer": "4"'), {"data"}),
        (rewrite("model/config.json", "llama", "qwen2"), {"model: config"}),
        (rewrite("model/tokenizer.json", "{}", "{ }"), {"model: tokenizer"}),
        (poke_weights, {"model: weights"}),
        (lambda bench: bench.profile_sets.append("grpo.temperature=0.7"), {"sampling: temperature"}),
        (lambda bench: bench.profile_sets.append("grpo.max_completion_length=13"), {"sampling: max_completion_length"}),
        (lambda bench: bench.profile_sets.append("grpo.top_p=0.9"), {"sampling: top_p"}),
        (lambda bench: bench.profile_sets.append('prompt.overlong="cut"'), {"sampling: overlong prompts"}),
    ],
)  # fmt: skip
def test_a_change_is_named(bench: Bench, change: Change, named: set[str]) -> None:
    before = bench.fingerprint()
    change(bench)
    after = bench.fingerprint()
    assert {text.partition(" (")[0] for text in changes(before, after)} == named


@pytest.mark.parametrize(
    "change",
    [
        lambda bench: bench.profile_sets.append("grpo.learning_rate=1e-6"),
        lambda bench: bench.profile_sets.append("grpo.max_steps=7"),
        lambda bench: (bench.folder / "README.md").write_text("not part of it"),
        lambda bench: (bench.model_dir / "README.md").write_text("not part of it"),
    ],
    ids=["learning rate", "steps", "file beside the task", "file beside the weights"],
)
def test_what_changes_no_score_and_no_completion_leaves_it_as_it_was(bench: Bench, change: Change) -> None:
    before = bench.fingerprint()
    change(bench)
    assert bench.fingerprint() == before


def test_it_does_not_depend_on_where_the_files_lie(bench: Bench) -> None:
    before = bench.fingerprint()
    moved = bench.folder / "elsewhere"
    moved.mkdir()
    for name in ("task.toml", "my_reward.py", "train.jsonl", "model"):
        shutil.move(bench.folder / name, moved / name)
    assert Bench(moved).fingerprint() == before


@pytest.mark.parametrize(
    ("module", "named"),
    [
        ("rewards/matching.py", ["reward: format"]),
        ("rewards/user_function.py", ["reward: correct"]),
        ("rewards/composite.py", ["reward: how parts combine"]),
        ("rewards/base.py", ["reward: format", "reward: correct", "reward: how parts combine"]),
        ("rewards/json_reward.py", []),
        ("rewards/registry.py", []),
        ("report/plots.py", []),
    ],
)
def test_our_own_source_counts_where_a_part_is_scored_by_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, module: str, named: list[str]
) -> None:
    copy = bench.folder / "package" / "spark_rl"
    for folder in ("rewards", "sandbox"):
        shutil.copytree(PACKAGE_ROOT / "spark_rl" / folder, copy / folder)
    (copy / "report").mkdir()
    monkeypatch.setattr(sys.modules["spark_rl.gate.fingerprint"], "PACKAGE_ROOT", copy.parent)
    before = bench.fingerprint()
    with (copy / module).open("a") as file:
        file.write("# another version\n")
    assert changes(before, bench.fingerprint()) == named


def test_a_helper_that_the_users_reward_imports_is_part_of_the_reward(bench: Bench) -> None:
    (bench.folder / "helper.py").write_text("LIMIT = 1\n")
    bench.rewrite("my_reward.py", lambda text: f"import helper\n{text}")
    before = bench.fingerprint()
    (bench.folder / "helper.py").write_text("LIMIT = 2\n")
    assert changes(before, bench.fingerprint()) == ["reward: correct"]


def test_the_chat_template_counts_where_the_task_uses_it(bench: Bench) -> None:
    bench.task_file.write_text(task_text(chat=True))
    before = bench.fingerprint()
    bench.rewrite("model/tokenizer_config.json", lambda text: text.replace("messages", "messages[0]"))
    assert changes(before, bench.fingerprint()) == ["chat template"]


def test_a_template_file_of_its_own_comes_before_the_tokenizers_settings(bench: Bench) -> None:
    bench.task_file.write_text(task_text(chat=True))
    before = bench.fingerprint()
    (bench.model_dir / "chat_template.jinja").write_text("{{ other }}")
    assert changes(before, bench.fingerprint()) == ["chat template"]


def test_the_chat_template_does_not_count_for_plain_text(bench: Bench) -> None:
    before = bench.fingerprint()
    (bench.model_dir / "chat_template.jinja").write_text("{{ other }}")
    assert bench.fingerprint() == before


def test_a_hub_model_is_known_by_its_name(bench: Bench) -> None:
    from spark_rl.gate import fingerprint

    def of(name: str) -> dict[str, str]:
        model = bench.recipe.model.model_copy(update={"id": name})
        return fingerprint(replace(bench.subject, recipe=replace(bench.recipe, model=model), model_dir=None))

    one, two = of("owner/one"), of("owner/two")
    assert changes(one, two) == ["model: id (was owner/one, now owner/two)"]


def test_a_missing_reward_file_is_named(bench: Bench) -> None:
    (bench.folder / "my_reward.py").unlink()
    with pytest.raises(ConfigError, match=r"my_reward\.py does not exist"):
        bench.fingerprint()


def test_values_are_shown_and_digests_are_not() -> None:
    told = changes({"sampling: top_p": "1.0", "data": "a" * 64}, {"sampling: top_p": "0.9", "data": "b" * 64})
    assert told == ["sampling: top_p (was 1.0, now 0.9)", "data"]


def test_only_reward_task_and_data_can_be_met_by_scoring_again() -> None:
    names = ["task file", "reward: correct", "data", "chat template", "model: weights", "sampling: top_p", "format"]
    assert [name for name in names if is_rescorable(name)] == ["task file", "reward: correct", "data"]


def test_the_gate_loads_no_training_stack() -> None:
    code = (
        "import json, sys, spark_rl.gate, spark_rl.gate.review, spark_rl.gate.rescore, spark_rl.gate.exchange\n"
        "import spark_rl.gate.status, spark_rl.gate.subject, spark_rl.cli.inspect\n"
        "heavy = {'torch', 'transformers', 'trl', 'unsloth', 'vllm', 'datasets', 'peft'}\n"
        "print(json.dumps(sorted(heavy & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
