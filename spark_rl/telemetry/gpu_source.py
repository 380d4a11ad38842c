"""GPU readings that never make the caller wait: the driver is asked in a thread of its own, so that a hung driver hangs
nobody else. In: something that makes an `NvmlSession`. Out: `NvmlSource.read()`, the newest answer as it may be shown now.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from spark_rl.telemetry.nvml import FAST_SECONDS, MEASURED, GpuAnswer, NvmlSession
from spark_rl.telemetry.reading import GpuReading

STALE_SECONDS = 3.0
"""An answer older than this is not shown any more."""
PATIENCE_SECONDS = 0.05
"""How long a pass waits for the driver: healthy drivers answer a whole pass in 1-10 ms."""


class NvmlSource:
    """Keeps one thread that asks the driver when asked to, and hands out its newest answer."""

    def __init__(
        self,
        make_session: Callable[[], NvmlSession] = NvmlSession,
        clock: Callable[[], float] = time.monotonic,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._make_session = make_session
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._wanted = threading.Condition()
        self._asked = 0
        self._answered = 0
        self._asked_at = 0.0
        self._closed = False
        self._answer = GpuAnswer()
        self._answered_at: float | None = None
        self._thread: threading.Thread | None = None

    def read(self) -> GpuAnswer:
        """The newest answer, asked for anew when it is older than `FAST_SECONDS`. Waits `patience_seconds` at most, and
        not at all while an earlier question is still open."""
        now = self._clock()
        with self._wanted:
            idle = self._asked == self._answered
            due = self._answered_at is None or now - self._answered_at >= FAST_SECONDS
            if idle and due and not self._closed:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve, name="nvml", daemon=True)
                    self._thread.start()
                self._asked += 1
                self._asked_at = now
                self._wanted.notify_all()
                self._wanted.wait_for(lambda: self._answered == self._asked, self._patience_seconds)
            return self._judge(self._answer, self._clock())

    def _judge(self, answer: GpuAnswer, now: float) -> GpuAnswer:
        """The answer as it may be shown now: too old means gone, with the reason."""
        if self._asked == self._answered:
            return answer
        waited = now - self._asked_at
        if answer.state == "starting":
            words = f"the driver has not answered its first question for {waited:.1f} s"
            return replace(answer, state="driver_hangs" if waited > STALE_SECONDS else "starting", detail=words)
        if self._answered_at is not None and now - self._answered_at > STALE_SECONDS:
            lost = {f"gpus.{gpu.index}.{name}": "driver_hangs" for gpu in answer.gpus for name in MEASURED}
            kept = tuple(
                GpuReading(gpu.index, gpu.name, gpu.unified, gpu.memory_total_bytes, answered_at=gpu.answered_at)
                for gpu in answer.gpus
            )
            return replace(
                answer,
                gpus=kept,
                missing={**answer.missing, **lost},
                state="driver_hangs",
                detail=f"no answer from the driver for {waited:.1f} s",
            )
        return answer

    def close(self) -> None:
        """Lets the thread end. A thread inside a hung driver is left to it."""
        with self._wanted:
            self._closed = True
            self._wanted.notify_all()

    def _serve(self) -> None:
        session: NvmlSession | None = None
        while True:
            with self._wanted:
                self._wanted.wait_for(lambda: self._closed or self._asked != self._answered)
                if self._closed:
                    return
                asked = self._asked
            try:
                session = session or self._make_session()
                answer = session.answer()
            except Exception as error:  # noqa: BLE001  sensor boundary: the other sensors go on
                answer = GpuAnswer(state="driver_error", detail=f"{type(error).__name__}: {error}")
            with self._wanted:
                self._answer = answer
                self._answered = asked
                self._answered_at = self._clock()
                self._wanted.notify_all()
