"""The engine's arithmetic: budgets, cache groups, concurrency, effective shares, start-up verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from spark_rl.fit.cases import predict_case
from spark_rl.fit.engine import (
    EngineSettings,
    StartUp,
    activation_bytes,
    cache_capacity,
    cache_layout,
    effective_utilization,
    engine_budget,
    engine_weight_bytes,
    judge_cache,
    judge_start_up,
    unsloth_shape,
)
from spark_rl.fit.engine_errors import explain_engine_error
from spark_rl.fit.scoring import concurrency_error
from spark_rl.modelcard import ModelCard, card_from_config, find_card
from spark_rl.units import GIB

GEMMA_27B = {
    "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62,
    "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 262208,
    "sliding_window": 1024, "sliding_window_pattern": 6,
}  # fmt: skip


def test_layers_of_two_kinds_are_padded_to_equal_groups() -> None:
    layout = cache_layout(card_from_config(GEMMA_27B, "gemma-3-27b"))
    assert (layout.layers_per_group, layout.groups, layout.layers_per_group * layout.groups) == (10, 7, 70)


def test_layers_of_one_kind_are_one_group() -> None:
    layout = cache_layout(find_card("Qwen/Qwen3-8B"))
    assert (layout.layers_per_group, layout.groups) == (36, 1)


def test_tensor_parallelism_halves_the_bytes_of_a_token() -> None:
    card = find_card("meta-llama/Llama-3.1-8B")
    alone = cache_capacity(card, 10 * GIB, 2048)
    shared = cache_capacity(card, 10 * GIB, 2048, tensor_parallel=2)
    assert shared.tokens == pytest.approx(2 * alone.tokens, rel=0.001)


def test_an_8_bit_cache_holds_twice_the_tokens() -> None:
    card = find_card("Qwen/Qwen3-8B")
    assert cache_capacity(card, GIB, 512, element_bytes=1).tokens == pytest.approx(
        2 * cache_capacity(card, GIB, 512).tokens, abs=16
    )


@pytest.mark.cases
def test_every_logged_concurrency_is_met_to_its_last_digit(
    case_rows: list[dict[str, Any]], case_cards: dict[str, ModelCard]
) -> None:
    checked = 0
    for row in case_rows:
        kv = row["kv"] or {}
        if (
            row["method"] != "vllm"
            or not row["scored"]
            or not kv.get("concurrency")
            or row["shape_of"] not in case_cards
        ):
            continue
        found = predict_case(row, case_cards).kv_concurrency
        if found is None:
            continue
        checked += 1
        assert concurrency_error(found, kv["concurrency"], kv) <= 0.2, row["id"]
    assert checked >= 30


@pytest.mark.cases
def test_the_concurrency_needs_no_logged_cache_size(
    case_rows: list[dict[str, Any]], case_cards: dict[str, ModelCard]
) -> None:
    row = next(row for row in case_rows if row["method"] == "vllm" and row["scored"] and row["kv"]["budget_gib"])
    without = {**row, "kv": {**row["kv"], "kv_gib": None, "kv_tokens": None}, "measured_gib": None, "verdict": None}
    assert predict_case(without, case_cards).kv_concurrency == predict_case(row, case_cards).kv_concurrency


def test_the_logged_start_of_a_4090_misses_by_80_mib_and_the_advised_cache_is_named() -> None:
    log = StartUp(23.51, 22.52, 0.8642, 3.61, 0.59, 0.02, 2.28)
    verdict = judge_start_up(log)
    assert not verdict.fits
    assert verdict.cache_gib == pytest.approx(16.10, abs=0.01)
    assert verdict.short_gib == pytest.approx(0.08, abs=0.005)
    assert verdict.cache_cap_bytes == pytest.approx(14_689_787_392, rel=0.001)
    assert "does not fit by 0.08 GiB" in verdict.sentence


def test_the_same_start_with_the_advised_cache_fits() -> None:
    log = StartUp(23.51, 22.52, 0.8642, 3.61, 0.59, 0.02, 2.28)
    cap = judge_start_up(log).cache_cap_bytes
    assert cap is not None
    assert 3.61 + 0.59 + 0.02 + 2.28 + cap / GIB < 22.52


def test_no_room_for_a_cache_is_refused_with_the_four_numbers() -> None:
    verdict = judge_start_up(StartUp(10.0, 10.0, 1.0, 9.1, 1.0, 0.0, 0.0))
    assert not verdict.fits
    for number in ("10.00", "9.10", "1.00", "0.00"):
        assert number in verdict.sentence


def test_less_than_one_request_is_refused() -> None:
    assert judge_cache(GIB, 0.7, "terms") is not None
    assert judge_cache(GIB, 2.07, "terms") is None


@pytest.mark.parametrize(("gib", "share"), [(39.56, 0.879), (23.5, 0.784), (14.7, 0.76), (11.0, 0.736), (8.0, 0.7125)])
def test_standby_replaces_the_asked_share_by_its_tier(gib: float, share: float) -> None:
    assert effective_utilization(0.5, gib, standby=True) == pytest.approx(share, abs=0.0006)


def test_the_override_variable_keeps_the_asked_share() -> None:
    assert effective_utilization(0.5, 39.56, standby=True, override=True) == 0.5


def test_the_budget_s_terms_add_up_to_the_claim() -> None:
    budget = engine_budget(find_card("Qwen/Qwen3-8B"), EngineSettings(kind="colocate", utilization=0.5), 80 * GIB)
    assert budget.claim == pytest.approx(budget.weights + budget.non_torch + budget.activation + budget.cache)


def test_three_failures_get_three_sentences_and_only_one_advises_a_lower_share() -> None:
    texts = (
        "RuntimeError: Expandable segments are not compatible with memory pool (expandable_segments:True)",
        "AssertionError: Error in memory profiling. Initial free memory 10.2 GiB, current free memory 12.7 GiB.",
        "ValueError: No available memory for the cache blocks.",
    )
    faults = [explain_engine_error(text) for text in texts]
    assert len({fault.sentence for fault in faults if fault}) == 3
    assert [bool(fault and "lower vllm.gpu_memory_utilization" in fault.advice) for fault in faults] == [
        False,
        False,
        True,
    ]


def test_other_errors_are_not_explained_as_memory() -> None:
    assert explain_engine_error("KeyError: 'weight_loader'") is None


NEMOTRON = {
    "model_type": "nemotron_h", "hidden_size": 2688, "intermediate_size": 1856, "num_attention_heads": 32,
    "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 131072, "mamba_num_heads": 64, "mamba_head_dim": 64,
    "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "n_routed_experts": 128, "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856, "hybrid_override_pattern": "MEMEM*EMEMEM*EM",
}  # fmt: skip


def test_recurrent_layers_take_one_block_a_sequence_and_attention_blocks_are_lengthened() -> None:
    layout = cache_layout(card_from_config(NEMOTRON, "hybrid"))
    assert layout.state_groups == 4
    assert layout.full_block_tokens > 1000
    assert layout.blocks_per_request(8192, 8192) == 4 + -(-8192 // layout.full_block_tokens)


def test_kinds_of_different_width_share_blocks_of_equal_bytes() -> None:
    wide = {
        "model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 60,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256, "global_head_dim": 512,
        "num_global_key_value_heads": 4, "attention_k_eq_v": True, "vocab_size": 262144, "sliding_window": 1024,
    }  # fmt: skip
    layout = cache_layout(card_from_config(wide, "wide"))
    assert (layout.sliding_block_tokens, layout.full_block_tokens) == (16, 32)


@pytest.mark.cases
def test_the_profiling_peak_of_logged_start_ups_is_predicted(
    case_rows: list[dict[str, Any]], case_cards: dict[str, ModelCard]
) -> None:
    """vLLM 0.19, 1024 sequences and 8192 batched tokens: half within 4 %, none beyond 15 %."""
    errors = []
    for row in case_rows:
        if row["framework_version"] != "0.19.0" or not row["scored"] or row["kv"]["activation_gib"] is None:
            continue
        engine = EngineSettings(
            max_num_seqs=1024, max_batched_tokens=8192, version="0.19.0", tensor_parallel=row["tensor_parallel"]
        )
        found = activation_bytes(case_cards[row["shape_of"]], engine) / GIB
        errors.append(abs(found / row["kv"]["activation_gib"] - 1))
    errors.sort()
    assert len(errors) >= 20
    assert errors[len(errors) // 2] <= 0.04
    assert errors[-1] <= 0.15


@pytest.mark.cases
def test_the_weights_of_logged_16_bit_start_ups_are_predicted(
    case_rows: list[dict[str, Any]], case_cards: dict[str, ModelCard]
) -> None:
    for row in case_rows:
        kv, shape = row["kv"] or {}, row["shape_of"]
        # Models with a vision tower load it too.
        if row["framework_version"] != "0.19.0" or not row["scored"] or row["quant"] or "gemma-3" in shape:
            continue
        if "Llama-4" in shape or "Mistral-Small-24B" in shape:
            continue
        engine = EngineSettings(tensor_parallel=row["tensor_parallel"])
        assert engine_weight_bytes(case_cards[shape], engine) / GIB == pytest.approx(kv["weights_gib"], rel=0.01), row[
            "id"
        ]


def test_unsloth_s_engine_takes_more_sequences_with_more_cache() -> None:
    assert [unsloth_shape(gb) for gb in (1, 5, 30, 100)] == [(2048, 8), (4096, 32), (8192, 96), (8192, 256)]
