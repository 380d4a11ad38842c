"""The memory floor and the heat limit of a run: what to do, decided from readings alone (`decide`), and the few effects
that only the operating system can have (`effects`). `Guard(limits).observe(reading)` returns the actions of this pass."""

from spark_rl.guard.action import Action
from spark_rl.guard.decide import Guard, GuardState, decide
from spark_rl.guard.limits import GuardLimits, limits_for

__all__ = ["Action", "Guard", "GuardLimits", "GuardState", "decide", "limits_for"]
