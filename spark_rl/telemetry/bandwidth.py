"""Memory bandwidth of the device: counted where a counter exists, derived from decoding where none does, or probed.

In: what a decode step reads and how fast tokens came, or the controller's busy share. Out: bytes per second with the word
that says how it was had. DGX Spark has no counter: there it is "derived" or "probed", never "counted".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spark_rl.telemetry.findings import Finding
from spark_rl.units import format_bytes

Source = Literal["counted", "derived", "probed"]

GB10_PEAK_BYTES_PER_SECOND = 273e9
GB10_SUSTAINED_BYTES_PER_SECOND = (180e9, 192e9)
"""What planning should count on; large dense models reach 229-245 GB/s in decoding."""
SMALL_MODEL_SHARE = 0.6
"""Of the peak: what models up to 4B parameters reach in single-stream decoding on DGX Spark, where launches and the
sampler take part of the step; below it something else is wrong."""


@dataclass(frozen=True)
class Bandwidth:
    bytes_per_second: float
    source: Source
    note: str


def bytes_per_decode_step(
    weight_bytes: float, kv_bytes_per_token: float, mean_context_tokens: float, num_sequences: float
) -> float:
    """What one decode step of a batch must read: the weights once, and every sequence's cache."""
    return weight_bytes + num_sequences * mean_context_tokens * kv_bytes_per_token


def derive_from_decoding(
    weight_bytes: float,
    kv_bytes_per_token: float,
    mean_context_tokens: float,
    num_sequences: float,
    tokens_per_second: float,
) -> Bandwidth | None:
    """Bytes per decode step times steps per second. A lower bound: activations and re-reads are not counted.
    None when nothing was decoded."""
    if tokens_per_second <= 0 or num_sequences <= 0:
        return None
    steps_per_second = tokens_per_second / num_sequences
    per_step = bytes_per_decode_step(weight_bytes, kv_bytes_per_token, mean_context_tokens, num_sequences)
    return Bandwidth(
        per_step * steps_per_second,
        "derived",
        f"{format_bytes(per_step)} a decode step x {steps_per_second:.1f} steps/s",
    )


def from_counter(memory_utilization_percent: float | None, peak_bytes_per_second: float | None) -> Bandwidth | None:
    """From NVML's counter: the share of time in which the memory was read or written. An upper bound. None where the
    device has no such counter (DGX Spark) or its peak is not known."""
    if memory_utilization_percent is None or peak_bytes_per_second is None:
        return None
    return Bandwidth(
        memory_utilization_percent / 100 * peak_bytes_per_second,
        "counted",
        "memory controller's busy share x peak: an upper bound",
    )


def judge_bandwidth(
    measured: Bandwidth, peak_bytes_per_second: float, healthy_share: float = SMALL_MODEL_SHARE
) -> Finding | None:
    """Says when decoding reads far less than this device sustains: the hidden slow mode shows nowhere else."""
    share = measured.bytes_per_second / peak_bytes_per_second
    if measured.source == "counted" or share >= healthy_share:
        return None
    return Finding(
        "bandwidth_low",
        "gpu0",
        "warning" if share >= healthy_share / 2 else "severe",
        f"{measured.bytes_per_second / 1e9:.0f} GB/s {measured.source}, {share:.0%} of the peak; healthy is {healthy_share:.0%} or more",
        {"bytes_per_second": round(measured.bytes_per_second), "share_of_peak": round(share, 3), "source": measured.source, "note": measured.note},
        "compare with spark-rl bench on the idle machine: if that is low too, power-cycle at the wall; if it is not, the "
        "engine is the cause (CUDA graphs off costs 55 %), or the batch is bound by something else than memory",
    )  # fmt: skip
