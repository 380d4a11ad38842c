"""What this machine's sensors say, and what that means: `Sampler().read() -> Reading`, rules over a window of readings.

Needs pynvml and the standard library only; loads neither torch nor anything that a training stack brings.
"""

from spark_rl.telemetry.reading import (
    REASONS,
    Ceiling,
    GpuReading,
    HostReading,
    Reading,
    WorkerReading,
    reading_from_row,
)
from spark_rl.telemetry.sampler import Sampler

__all__ = ["REASONS", "Ceiling", "GpuReading", "HostReading", "Reading", "Sampler", "WorkerReading", "reading_from_row"]
