"""How long a TRL trainer generates, and how much: the figures from which memory bandwidth and energy per token are derived."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class RolloutClock:
    """Times every rollout of a trainer until the next `take()`."""

    def __init__(self, trainer: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._generate = trainer._generate
        self.num_rollouts = 0
        """Since the trainer was built."""
        self._reset()
        trainer._generate = self._timed

    def _timed(self, *arguments: Any, **keywords: Any) -> Any:
        started = self._clock()
        answer = self._generate(*arguments, **keywords)
        self._seconds += self._clock() - started
        self.num_rollouts += 1
        prompts, completions = answer[0], answer[1]
        lengths = [len(ids) for ids in completions]
        self._num_completions += len(lengths)
        self._num_tokens += sum(lengths)
        self._num_steps += max(lengths, default=0)
        self._num_prompt_tokens += sum(len(ids) for ids in prompts)
        return answer

    def take(self) -> dict[str, float]:
        """Since the last call: seconds, completions, their tokens, the longest one's tokens (decode steps), prompt tokens.
        {} when nothing was generated: a step that trains on an earlier rollout."""
        if not self._num_completions:
            return {}
        figures = {
            "rollout/seconds": self._seconds,
            "rollout/num_completions": self._num_completions,
            "rollout/num_tokens": self._num_tokens,
            "rollout/num_decode_steps": self._num_steps,
            "rollout/num_prompt_tokens": self._num_prompt_tokens,
        }
        self._reset()
        return figures

    def _reset(self) -> None:
        self._seconds = 0.0
        self._num_completions = self._num_tokens = self._num_steps = self._num_prompt_tokens = 0
