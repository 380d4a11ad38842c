"""Properties that hold for any recipe: more work never costs less memory, a lever never costs much more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rl.fit.calibration import TRL, UNSLOTH
from spark_rl.fit.phases import run_phases
from spark_rl.fit.workload import EngineSettings, Workload
from spark_rl.modelcard import find_card
from spark_rl.units import GIB, MIB

MODELS = (
    "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen3-4B",
    "meta-llama/Llama-3.1-8B",
    "Qwen/Qwen3-30B-A3B",
    "google/gemma-2-9b",
)
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TOTAL = 80 * GIB
LEVERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # name: the setting before, the setting with the lever on
    "checkpointing": ({"checkpointing": "off"}, {"checkpointing": "on"}),
    "parked activations": ({"checkpointing": "on"}, {"checkpointing": "unsloth"}),
    "8-bit state": ({"optimizer": "adamw_torch_fused"}, {"optimizer": "adamw_torch_8bit"}),
    "bitsandbytes 8-bit state": ({"optimizer": "adamw_torch"}, {"optimizer": "adamw_8bit"}),
    "chunked logits": ({"loss": "full"}, {"loss": "chunked"}),
    "tiled MLP": ({"tiled_mlp": False}, {"tiled_mlp": True}),
    "offloaded state": ({"offload_optimizer": False}, {"offload_optimizer": True}),
    "parked state": ({"park_optimizer": False}, {"park_optimizer": True}),
}


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    tuning = draw(st.sampled_from(("full", "lora", "qlora")))
    kind = draw(st.sampled_from(("native", "colocate") if tuning != "qlora" else ("native", "shared")))
    unsloth = draw(st.booleans())
    rows = draw(st.integers(1, 16))
    prompt, completion = draw(st.integers(16, 1024)), draw(st.integers(16, 4096))
    return Workload(
        card=find_card(draw(st.sampled_from(MODELS))),
        tuning=tuning,
        quant="bnb-4bit" if tuning == "qlora" else None,
        double_quant=draw(st.booleans()),
        lora_rank=draw(st.integers(1, 128)),
        lora_targets=TARGETS,
        optimizer=draw(
            st.sampled_from(("adamw_torch", "adamw_torch_fused", "adamw_8bit", "paged_adamw_8bit", "lion_8bit"))
        ),
        rows=rows,
        tokens_per_row=prompt + completion,
        completion_tokens_per_row=completion + 1,
        accumulates=draw(st.booleans()),
        checkpointing=draw(st.sampled_from(("off", "on", "unsloth"))),
        loss="chunked" if unsloth else draw(st.sampled_from(("full", "chunked"))),
        kernels="unsloth" if unsloth else None,
        stack=UNSLOTH if unsloth else TRL,
        rollout_sequences=rows * 4,
        prompt_tokens=prompt,
        completion_tokens=completion,
        # Losses that size their chunks by free memory are held still: only then is one thing changed at a time.
        free_bytes=20.0 * GIB,
        engine=EngineSettings(
            kind=kind,
            utilization=draw(st.floats(0.1, 0.9)),
            max_model_len=prompt + completion,
            max_num_seqs=rows * 4,
            sleep_level=draw(st.sampled_from((0, 2))),
        ),
    )


def peak(work: Workload) -> float:
    return max(phase.total() for phase in run_phases(work, TOTAL))


@settings(max_examples=60, deadline=None)
@given(work=workloads(), more=st.integers(1, 16))
def test_more_rows_never_need_less(work: Workload, more: int) -> None:
    assert peak(replace(work, rows=work.rows + more)) >= peak(work) - 1


@settings(max_examples=60, deadline=None)
@given(work=workloads(), more=st.integers(1, 2000))
def test_longer_completions_never_need_less(work: Workload, more: int) -> None:
    longer = replace(
        work,
        tokens_per_row=work.tokens_per_row + more,
        completion_tokens_per_row=(work.completion_tokens_per_row or 0) + more,
        completion_tokens=work.completion_tokens + more,
        engine=replace(work.engine, max_model_len=(work.engine.max_model_len or 0) + more),
    )
    assert peak(longer) >= peak(work) - 1


@settings(max_examples=60, deadline=None)
@given(work=workloads(), more=st.integers(1, 128))
def test_a_higher_rank_never_needs_less(work: Workload, more: int) -> None:
    assert peak(replace(work, lora_rank=work.lora_rank + more)) >= peak(work) - 1


@settings(max_examples=60, deadline=None)
@given(work=workloads(), factor=st.integers(2, 4))
def test_larger_groups_never_need_less(work: Workload, factor: int) -> None:
    assert peak(replace(work, rollout_sequences=work.rollout_sequences * factor)) >= peak(work) - 1


@pytest.mark.parametrize("lever", LEVERS)
@settings(max_examples=40, deadline=None)
@given(work=workloads())
def test_a_lever_never_raises_the_peak_by_more_than_256_mib(lever: str, work: Workload) -> None:
    before, after = LEVERS[lever]
    assert peak(replace(work, **after)) <= peak(replace(work, **before)) + 256 * MIB


@settings(max_examples=40, deadline=None)
@given(work=workloads())
def test_sleep_never_raises_the_peak_by_more_than_256_mib(work: Workload) -> None:
    asleep = replace(work, engine=replace(work.engine, sleep_level=2))
    assert peak(asleep) <= peak(replace(work, engine=replace(work.engine, sleep_level=0))) + 256 * MIB


@settings(max_examples=60, deadline=None)
@given(work=workloads())
def test_phases_sum_to_their_lines_and_every_line_has_a_formula(work: Workload) -> None:
    for phase in run_phases(work, TOTAL):
        assert phase.total("device") + phase.total("host") == pytest.approx(sum(line.num_bytes for line in phase.lines))
        assert all(line.formula for line in phase.lines)
        assert all(line.num_bytes >= 0 for line in phase.lines)
