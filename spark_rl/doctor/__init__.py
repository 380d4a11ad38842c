"""Is this machine ready to train, and if not, what to do: `examine(environment) -> Report`, pure; `gather()` asks the machine."""

from spark_rl.doctor.environment import Environment, Gpu
from spark_rl.doctor.report import Check, Report, examine

__all__ = ["Check", "Environment", "Gpu", "Report", "examine"]
