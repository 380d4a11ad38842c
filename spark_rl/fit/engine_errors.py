"""What an engine's start-up error really means. Three different causes used to be reported as one "out of memory".

In: the text of an error or a log. Out: an `EngineFault` with a sentence and what to do, or None. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal["expandable_segments", "memory_freed_while_profiling", "shortage"]


@dataclass(frozen=True)
class EngineFault:
    kind: FaultKind
    sentence: str
    advice: str


_EXPANDABLE = EngineFault(
    "expandable_segments",
    "the allocator's expandable segments and the engine's sleep pool exclude each other; memory is not the problem",
    "unset PYTORCH_ALLOC_CONF (or expandable_segments) before the process starts, or do without standby",
)
_PROFILING = EngineFault(
    "memory_freed_while_profiling",
    "another process gave memory back while the engine was measuring, so its figures do not add up; nothing is short",
    "start again when the other process has ended, or set vllm.kv_cache_memory_bytes, which skips the measurement",
)
_SHORTAGE = EngineFault(
    "shortage",
    "the device has too little free memory for the share the engine was given",
    "lower vllm.gpu_memory_utilization when something else needs the memory (raise it when only the cache is short), or "
    "shorten vllm.max_model_len",
)

# Particular before general: the first two also contain words of memory.
_SIGNS: tuple[tuple[EngineFault, tuple[str, ...]], ...] = (
    (_EXPANDABLE, ("expandable_segments", "expandable segments")),
    (_PROFILING, ("error in memory profiling", "while vllm is profiling", "memory profiling failed")),
    (
        _SHORTAGE,
        (
            "no available memory for the cache blocks",
            "available kv cache memory",
            "out of memory",
            "outofmemoryerror",
            "less than desired gpu memory utilization",
            "larger than the maximum number of tokens that can be stored in kv cache",
            "nv_err_no_memory",
        ),
    ),
)


def explain_engine_error(text: str) -> EngineFault | None:
    """The cause behind an engine's error text; None when it is not about memory."""
    lowered = text.lower()
    for fault, signs in _SIGNS:
        if any(sign in lowered for sign in signs):
            return fault
    return None
