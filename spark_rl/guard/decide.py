"""What to do about memory and heat, from readings alone: `decide(limits, state, reading) -> (state, actions)`.

In: limits, the state after the last reading, a reading. Out: the next state and the actions of this pass, each with its
reason and the readings it rests on. Nothing here reads a clock, a sensor or a file.

The ladder for memory: shed (checkpoint, empty caches, smaller micro-batch) -> stop (checkpoint, end) -> kill (process group).
For heat: pause between steps -> stop -> kill. An action is said once; the end of an episode is an action too ("calm").
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_rl.guard.action import Action
from spark_rl.guard.heat import HeatState, decide_heat
from spark_rl.guard.limits import GuardLimits
from spark_rl.guard.memory import MemoryState, decide_memory
from spark_rl.telemetry.reading import Reading


@dataclass(frozen=True)
class GuardState:
    memory: MemoryState = field(default_factory=MemoryState)
    heat: HeatState = field(default_factory=HeatState)
    next_seconds: float = 0.5
    """How long to wait before the next reading."""


def decide(limits: GuardLimits, state: GuardState, reading: Reading) -> tuple[GuardState, tuple[Action, ...]]:
    """The next state and what to do now."""
    memory, memory_actions, wait = decide_memory(limits, state.memory, reading)
    heat, heat_actions = decide_heat(limits, state.heat, reading)
    return GuardState(memory, heat, wait), (*memory_actions, *heat_actions)


class Guard:
    """`decide` with its state kept. One per run."""

    def __init__(self, limits: GuardLimits) -> None:
        self.limits = limits
        self.state = GuardState(next_seconds=limits.sample_seconds)

    def observe(self, reading: Reading) -> tuple[Action, ...]:
        self.state, actions = decide(self.limits, self.state, reading)
        return actions

    @property
    def next_seconds(self) -> float:
        """How long to wait before the next reading: shorter while memory falls."""
        return self.state.next_seconds
