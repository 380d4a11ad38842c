"""What one sample may use. Each limit has a reason; a task may change them, an unlimited one does not exist."""

from __future__ import annotations

from dataclasses import dataclass

from spark_rl.units import MIB


@dataclass(frozen=True)
class Limits:
    """Limits of one sample: its process, its scratch folder, its output."""

    time_seconds: float = 5.0
    """Wall clock from start to verdict. HumanEval's canonical solutions take under 0.2 s; a busy host is slower."""
    cpu_seconds: int = 5
    """Processor time of each of the sample's two processes."""
    memory_bytes: int = 1024 * MIB
    """Address space. An idle Python maps about 60 MiB; each thread adds its 8 MiB stack."""
    scratch_bytes: int = 64 * MIB
    """All files of the scratch folder together."""
    scratch_files: int = 1024
    """Files and folders in the scratch folder: empty files cost kernel memory too."""
    file_bytes: int = 32 * MIB
    """One file."""
    open_files: int = 64
    """Descriptors, pipes and socket pairs."""
    threads: int = 64
    """Threads (processes cannot be started at all)."""
    output_bytes: int = MIB
    """Standard output and error together; more ends the sample."""
    source_bytes: int = 2 * MIB
    """A longer program is refused unread: no model writes one, and compiling 10 MB takes longer than any test."""
