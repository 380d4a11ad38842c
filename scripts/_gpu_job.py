"""One training of gpu_check in a process of its own: figures as JSON. argv: a JSON job, the result file.

job: {"sets", "profile", "fault", "bare"}. Measures device bytes at each step boundary, seconds a step, the canary's rows, and what was
read back. `bare` trains the same with nothing of spark_rl around TRL's trainer but the configuration.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def device_bytes() -> dict[str, int]:
    import torch

    if not torch.cuda.is_available():
        return {}
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated_peak": torch.cuda.max_memory_allocated(),
        "reserved_peak": torch.cuda.max_memory_reserved(),
        "device_used": total - free,
    }


class Hooks:
    """Notes the time and the memory at every step boundary."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []
        self.at: list[float] = []
        self.used: list[int] = []

    def on_metrics(self, step: int, metrics: Any) -> None:
        keys = ("reward", "step_time", "sampling/sampling_logp_difference/mean")
        self.metrics.append({key: metrics.get(key) for key in keys})

    def on_samples(self, samples: Any) -> None: ...

    def on_checkpoint(self, path: Path, step: int) -> None: ...

    def on_shed(self, changes: Any) -> None: ...

    def poll(self, step: int) -> Any:
        from spark_rl.engines.base import Command

        self.at.append(time.perf_counter())
        self.used.append(device_bytes().get("device_used", 0))
        return Command()


def sleep_cost(engine: Any) -> dict[str, float] | None:
    """Seconds to sleep and to wake, where the engine can."""
    llm = getattr(getattr(engine.model, "vllm_engine", None), "llm", getattr(engine.model, "vllm_engine", None))
    if llm is None or not hasattr(llm, "sleep"):
        return None
    started = time.perf_counter()
    llm.sleep(level=2)
    slept = time.perf_counter()
    llm.wake_up()
    return {"sleep_seconds": slept - started, "wake_seconds": time.perf_counter() - slept}


def main(job: dict[str, Any], out: Path) -> None:
    from spark_rl.dataset import load_examples
    from spark_rl.engines import build_engine
    from spark_rl.engines.base import TrainJob
    from spark_rl.errors import SparkError
    from spark_rl.recipe import resolve
    from spark_rl.rewards.composite import Composite
    from spark_rl.task import load_task

    task = load_task("sort-digits")
    recipe = resolve(job["profile"], task.overrides, job["sets"])
    result: dict[str, Any] = {"canary": [], "moved": None, "stopped_by": None}

    def note(event: str, fields: Any) -> None:
        if event == "canary_compared":
            result["canary"].append(dict(fields))
        elif event == "weights_moved":
            result["moved"] = fields["message"]

    hooks = Hooks()
    started = time.perf_counter()
    try:
        engine = build_engine(recipe, {})
        engine.load()
        result["load_seconds"] = time.perf_counter() - started
        with tempfile.TemporaryDirectory() as folder:
            job_ = TrainJob(load_examples(task).train, Composite(task.build_rewards()), Path(folder), None, hooks, note)
            with planted(job.get("fault")):
                engine.train(job_, lambda effective: result.update(effective=effective.to_json()))
        result["sleep"] = sleep_cost(engine)
    except SparkError as error:
        result["stopped_by"] = error.message
    result |= {"metrics": hooks.metrics, "device": device_bytes(), "device_used": hooks.used}
    result["step_seconds"] = [after - before for before, after in zip(hooks.at, hooks.at[1:], strict=False)]
    out.write_text(json.dumps(result, default=str))


def planted(fault: str | None) -> Any:
    """`stale`: TRL's sync becomes empty after the first, the engine keeps the weights it has."""
    import contextlib

    @contextlib.contextmanager
    def nothing() -> Any:
        yield

    @contextlib.contextmanager
    def stale() -> Any:
        from trl.generation.vllm_generation import VLLMGeneration

        sync, done = VLLMGeneration.sync_weights, []

        def once(self: Any) -> None:
            if not done or self.enable_sleep_mode:
                first = [(name, weight.clone()) for name, weight in self._iter_named_params()] if not done else done[0]
                done[:] = [first]
                walk = self._iter_named_params
                self._iter_named_params = lambda: iter(first)
                try:
                    sync(self)
                finally:
                    self._iter_named_params = walk

        VLLMGeneration.sync_weights = once
        try:
            yield
        finally:
            VLLMGeneration.sync_weights = sync

    return stale() if fault == "stale" else nothing()


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    main(json.loads(sys.argv[1]), Path(sys.argv[2]))
