"""One side of bench_rollout: starts an engine, then answers every line on stdin with one timed round of generation.

`ours`: the trainer's route as a run uses it (TRL's colocated vLLM, canary attached). `bare`: vllm.LLM.generate with the same
prompts and settings. Each answer is a JSON line {"tokens", "seconds"} on the descriptor that argv names.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NUM_PROMPTS = 256
MAX_TOKENS = 12
SEQUENCES = 64
SETS = [
    "engine.name=plain",
    "rollout.kind=vllm_colocate",
    "vllm.enforce_eager=true",
    "grpo.max_steps=1",
    f"grpo.max_completion_length={MAX_TOKENS}",
]


def serve(answer: Any, generate: Callable[[], int]) -> None:
    """Say ready, then one round for every line."""
    answer.write("ready\n")
    answer.flush()
    for _ in sys.stdin:
        started = time.perf_counter()
        tokens = generate()
        answer.write(json.dumps({"tokens": tokens, "seconds": time.perf_counter() - started}) + "\n")
        answer.flush()


def prompts(tokenizer: Any) -> list[list[int]]:
    from spark_rl.dataset import load_examples
    from spark_rl.task import load_task

    examples = load_examples(load_task("sort-digits")).train[:NUM_PROMPTS]
    return [tokenizer(example.prompt)["input_ids"] for example in examples]


def bare(answer: Any) -> None:
    from transformers import AutoTokenizer
    from vllm import LLM, SamplingParams

    from spark_rl.models import resolve_model

    folder = str(resolve_model("embedded"))
    llm = LLM(
        model=folder,
        dtype="float32",
        enforce_eager=True,
        max_model_len=64,
        max_num_seqs=SEQUENCES,
        max_num_batched_tokens=4096,
        logprobs_mode="processed_logprobs",
        enable_prefix_caching=True,
        seed=0,
    )
    asked = [{"prompt_token_ids": ids} for ids in prompts(AutoTokenizer.from_pretrained(folder))]
    sampling = SamplingParams(n=1, temperature=1.0, top_p=1.0, top_k=0, max_tokens=MAX_TOKENS, logprobs=0)

    def generate() -> int:
        outputs = llm.generate(asked, sampling_params=sampling, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    serve(answer, generate)


def ours(answer: Any) -> None:
    from spark_rl.dataset import load_examples
    from spark_rl.engines import build_engine
    from spark_rl.engines.base import Command, TrainJob
    from spark_rl.recipe import resolve
    from spark_rl.rewards.composite import Composite
    from spark_rl.task import load_task

    task = load_task("sort-digits")
    engine = build_engine(resolve("cpu-tiny", task.overrides, SETS), {})
    engine.load()
    from trl.generation import vllm_generation

    built: list[Any] = []
    construct = vllm_generation.VLLMGeneration.__init__

    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        built.append(self)

    vllm_generation.VLLMGeneration.__init__ = remember
    asked = prompts(engine.tokenizer)

    class Hooks:
        """The round is timed at a step boundary of a real training, where everything of a run is in place."""

        def on_metrics(self, step: int, metrics: Any) -> None: ...

        def on_samples(self, samples: Any) -> None: ...

        def on_checkpoint(self, path: Path, step: int) -> None: ...

        def on_shed(self, changes: Any) -> None: ...

        def poll(self, step: int) -> Command:
            generation = built[0]

            def generate() -> int:
                _, completions, _, _ = generation.generate(asked, None, 1)
                return sum(len(ids) for ids in completions)

            generation.sync_weights()  # the step has just changed them
            generate()  # the second of the canary's first comparisons
            serve(answer, generate)
            return Command(stop=True)

    with tempfile.TemporaryDirectory() as folder:
        composite = Composite(task.build_rewards())
        engine.train(
            TrainJob(load_examples(task).train, composite, Path(folder), None, Hooks()), lambda effective: None
        )


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault(
        "VLLM_CPU_OMP_THREADS_BIND", "nobind"
    )  # as in a run; the other side's threads share the cores
    with os.fdopen(int(sys.argv[2]), "w") as channel:
        (ours if sys.argv[1] == "ours" else bare)(channel)
