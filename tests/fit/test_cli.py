"""`spark-rl fit` as a person uses it: exit codes, JSON, sweeps, and no heavy import."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_rl.cli.main import main

BIG = ["fit", "--model", "Qwen/Qwen2.5-32B-Instruct", "--machine", "24"]


def test_a_profile_that_fits_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--profile", "3b-full-24gb", "--machine", "24"]) == 0
    assert capsys.readouterr().out.startswith("FITS: 3b-full-24gb on 24")


def test_a_recipe_that_does_not_fit_exits_3_and_says_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(BIG) == 3
    out = capsys.readouterr().out
    assert out.startswith("DOES NOT FIT")
    assert "cheapest first" in out or "choose a smaller model" in out


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BIG, "--json"]) == 3
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["verdict"] == "does_not_fit"


def test_explain_shows_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    main(["fit", "--profile", "3b-full-24gb", "--machine", "24", "--explain"])
    assert "weights = 3.09 G parameters" in capsys.readouterr().out


def test_tight_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["fit", "--profile", "3b-full-24gb", "--gpu-gib", "22"])
    assert code == 0
    assert "warning" in capsys.readouterr().err


def test_a_sweep_prints_a_row_a_combination(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = ["--sweep", "lora.r=8,64", "--sweep", "grpo.per_device_train_batch_size=8,16"]
    assert main(["fit", "--profile", "3b-lora-24gb", "--machine", "24", *sweep, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["settings"]["lora.r"] for row in rows] == [8, 8, 64, 64]


def test_a_value_of_the_wrong_kind_in_a_sweep_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    main(["fit", "--profile", "3b-lora-24gb", "--machine", "24", "--sweep", "lora.r=8,many"])
    assert "refused" in capsys.readouterr().out


def test_what_fits_names_a_class_for_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--what-fits", "--machine", "dgx-spark", "--json"]) == 0
    rows = {row["method"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["full"]["size_class"] == "9b"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--model", "Qwen/Qwen2.5-3B-Instruktor"], 2, "did you mean"),
        (["--machine", "dgx-sprak", "--profile", "cpu-tiny"], 2, "dgx-spark"),
        (["--gpu-gib", "0", "--profile", "cpu-tiny"], 2, "not a size"),
        (["--gpu-gib", "24", "--machine", "24", "--profile", "cpu-tiny"], 2, "exclude each other"),
        ([], 2, "what should fit?"),
        (["--profile", "cpu-tiny", "--sweep", "lora.rank=1,2"], 2, "unknown key"),
        (["--profile", "cpu-tiny", "--sweep", "lora.r="], 2, "must read"),
        (["--profile", "cpu-tinny"], 2, "cpu-tiny"),
        (["--recipe", "nowhere.json"], 2, "not a saved recipe"),
    ],
)
def test_bad_input_gets_a_sentence_and_its_exit_code(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *arguments]) == code
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert words in err


def _config(tmp_path: Path, **extra: object) -> str:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(extra))
    return str(path)


def test_an_unknown_family_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--model", _config(tmp_path, model_type="novel", hidden_size=8)]) == 2
    assert "'novel' is not known" in capsys.readouterr().err


def test_a_missing_field_exits_2_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--model", _config(tmp_path, model_type="llama", hidden_size=64, num_attention_heads=4)]) == 2
    assert "num_hidden_layers" in capsys.readouterr().err


def test_a_vision_model_exits_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--model", _config(tmp_path, model_type="gemma3", vision_config={}, text_config={})]) == 4
    assert "vision-language" in capsys.readouterr().err


def test_a_known_conflict_exits_4(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["--set", "tuning.method=qlora", "--set", "model.quantization=bnb-4bit"]
    assert main(["fit", "--model", "Qwen/Qwen2.5-7B-Instruct", "--machine", "24", *sets]) == 4
    assert "hint: " in capsys.readouterr().err


def test_a_saved_recipe_can_be_checked_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from spark_rl.recipe import resolve

    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(resolve("3b-lora-24gb").to_json()))
    assert main(["fit", "--recipe", str(path), "--machine", "24", "--set", "lora.r=64"]) == 0
    assert "LoRA r64" in capsys.readouterr().out


def test_fit_imports_nothing_heavy() -> None:
    code = (
        "import sys; from spark_rl.cli.main import main; main(['fit','--profile','3b-lora-24gb','--machine','24']); "
        "print([name for name in ('torch','transformers','trl','unsloth','vllm','peft','datasets','numpy') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def reference_seconds() -> float:
    """CPU seconds of a million rounds of plain Python: 0.041 on a quiet machine, more where others compute too."""
    started = time.process_time()
    sum(number & 7 for number in range(1_000_000))
    return time.process_time() - started


def test_a_thousand_recipes_take_two_seconds_of_a_quiet_machine() -> None:
    from spark_rl.fit.sweep import parse_axis, sweep
    from spark_rl.host import machine_class
    from spark_rl.recipe import resolve

    axes = [
        parse_axis("grpo.per_device_train_batch_size=" + ",".join(str(8 * n) for n in range(1, 11))),
        parse_axis("lora.r=" + ",".join(str(2**n) for n in range(10))),
        parse_axis("grpo.max_steps=" + ",".join(map(str, range(1, 11)))),
    ]
    before, started = reference_seconds(), time.process_time()
    assert len(list(sweep(resolve("3b-lora-24gb"), machine_class("24"), axes))) == 1000
    taken = time.process_time() - started
    assert taken <= 2 * max(1.0, max(before, reference_seconds()) / 0.041)
