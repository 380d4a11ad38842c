"""Model facts without loading a model: exact counts, clear refusals."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from spark_rl.errors import ConfigError, Refused
from spark_rl.fit.scoring import card_of_row, model_row, read_rows
from spark_rl.modelcard import card_from_config, find_card, shipped_cards

TINY = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 10,
    "tie_word_embeddings": True,
}


@pytest.mark.cases
def test_every_public_configuration_is_counted_to_the_parameter(cases_dir: Path) -> None:
    rows = read_rows(cases_dir / "memory" / "model_configs.jsonl")
    wrong = [row["model"] for row in rows if card_of_row(row).parameter_count != row["params_total"]]
    assert len(rows) >= 100
    assert wrong == []


@pytest.mark.cases
def test_every_public_configuration_has_the_published_cache_bytes_per_token(cases_dir: Path) -> None:
    rows = read_rows(cases_dir / "memory" / "model_configs.jsonl")
    wrong = [
        row["model"] for row in rows if model_row(row)["kv_bytes_per_token_bf16"] != row["kv_bytes_per_token_bf16"]
    ]
    assert wrong == []


@pytest.mark.cases
def test_embedding_and_output_layer_are_told_apart(cases_dir: Path) -> None:
    for row in read_rows(cases_dir / "memory" / "model_configs.jsonl"):
        card = card_of_row(row)
        assert (card.embedding_count, card.head_count) == (row["params_embedding"], row["params_lm_head_untied"]), row[
            "model"
        ]


def test_every_shipped_card_can_be_read() -> None:
    for name in shipped_cards():
        assert find_card(name).parameter_count > 10**6, name


def test_a_small_llama_is_counted_by_hand() -> None:
    card = card_from_config(TINY, "tiny")
    attention = 8 * 8 + 2 * (8 * 4) + 8 * 8
    mlp = 3 * 8 * 16
    assert card.parameter_count == 10 * 8 + 2 * (attention + mlp + 2 * 8) + 8


def test_an_unknown_family_is_refused_and_named() -> None:
    with pytest.raises(ConfigError, match="model_type 'llamo' is not known") as caught:
        card_from_config({**TINY, "model_type": "llamo"}, "mine")
    assert "llama" in (caught.value.hint or "")


def test_a_missing_size_is_named_and_not_guessed() -> None:
    config = {key: value for key, value in TINY.items() if key != "intermediate_size"}
    with pytest.raises(ConfigError, match="no 'intermediate_size'"):
        card_from_config(config, "mine")


@pytest.mark.parametrize("value", [-1, 2.5, "many", True, 10**12])
def test_a_size_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="hidden_size"):
        card_from_config({**TINY, "hidden_size": value}, "mine")


def test_a_vision_language_model_is_refused() -> None:
    with pytest.raises(Refused, match="vision-language"):
        card_from_config({"model_type": "gemma3", "vision_config": {}, "text_config": TINY}, "seer")


def test_an_unknown_model_names_the_nearest_and_how_to_give_a_config() -> None:
    with pytest.raises(ConfigError) as caught:
        find_card("Qwen/Qwen2.5-1.5B-Instuct")
    assert "Qwen/Qwen2.5-1.5B-Instruct" in (caught.value.hint or "")
    assert "config.json" in (caught.value.hint or "")


def _write_model(folder: Path, count: int) -> None:
    (folder / "config.json").write_text(json.dumps(TINY))
    header = json.dumps({"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


def test_safetensors_headers_that_agree_are_said(tmp_path: Path) -> None:
    _write_model(tmp_path, card_from_config(TINY, "t").parameter_count)
    assert "safetensors headers have the same" in find_card(str(tmp_path)).source


def test_safetensors_headers_that_differ_are_said(tmp_path: Path) -> None:
    _write_model(tmp_path, 17)
    assert "the safetensors headers hold 17 elements" in find_card(str(tmp_path)).notes[0]


def test_a_damaged_safetensors_file_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 5)
    assert find_card(str(tmp_path)).notes == ()


def test_a_cached_hub_model_is_read_from_its_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "models--some--thing"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text("abc")
    (root / "snapshots" / "abc").mkdir(parents=True)
    (root / "snapshots" / "abc" / "config.json").write_text(json.dumps(TINY))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert find_card("some/thing").parameter_count == card_from_config(TINY, "t").parameter_count


def test_a_config_file_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(TINY))
    assert find_card(str(path)).vocab == 10


def test_a_long_target_list_reaches_fused_projections_once() -> None:
    phi = find_card("microsoft/phi-4")
    names = ("q_proj", "k_proj", "v_proj")
    assert phi.lora_parameter_count(8, names) == phi.lora_parameter_count(8, ("qkv_proj",))


def test_expert_adapters_count_every_expert() -> None:
    moe = find_card("Qwen/Qwen3-30B-A3B")
    with_experts = moe.lora_parameter_count(16, ("q_proj", "experts"))
    assert with_experts - moe.lora_parameter_count(16, ("q_proj",)) == 48 * 16 * 128 * (2048 + 1536 + 768 + 2048)


def test_a_card_of_a_vision_model_s_text_part_says_so() -> None:
    assert "vision-language" in find_card("Qwen/Qwen3.5-9B").notes[0]
