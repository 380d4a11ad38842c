"""Ways to break the agreement of sampler and trainer on purpose, each a context manager around a real CPU engine.

They act below the canary: on vLLM's model, on what TRL pushes, on what vLLM is given to read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Fault = Callable[[Any], contextlib.AbstractContextManager[None]]
"""Takes the vLLM engine (`vllm.LLM`)."""


def model_of(llm: Any) -> Any:
    return llm.llm_engine.model_executor.driver_worker.model_runner.model


def packed_layers(llm: Any) -> Iterator[Any]:
    """Layers that vLLM's CPU build computes with a kernel of its own choice."""
    return (module for module in model_of(llm).modules() if hasattr(module, "cpu_linear"))


@contextlib.contextmanager
def stale_route(llm: Any) -> Iterator[None]:
    """Every linear layer computes with a copy packed now, as the AVX-512 kernels do at load; a later sync writes the
    parameter, and nothing reads it. The checksums stay right."""
    import torch

    before = [(layer, layer.cpu_linear) for layer in packed_layers(llm)]
    for layer, _ in before:
        packed = layer.weight.detach().clone()
        layer.cpu_linear = lambda x, weight, bias, packed=packed: torch.nn.functional.linear(x, packed, bias)
    try:
        yield
    finally:
        for layer, gemm in before:
            layer.cpu_linear = gemm


@contextlib.contextmanager
def one_layer_not_synced(llm: Any) -> Iterator[None]:
    """The engine drops what it is given for one layer."""
    model = model_of(llm)
    load = model.load_weights

    def dropping(weights: Any) -> Any:
        return load((name, tensor) for name, tensor in weights if ".layers.2." not in name)

    model.load_weights = dropping
    try:
        yield
    finally:
        model.load_weights = load


@contextlib.contextmanager
def adapter_missing(llm: Any) -> Iterator[None]:
    """The adapter is not merged before the weights are pushed."""
    from peft.tuners.tuners_utils import BaseTuner

    merge = BaseTuner.merge_adapter
    BaseTuner.merge_adapter = lambda self, *args, **kwargs: None
    try:
        yield
    finally:
        BaseTuner.merge_adapter = merge


@contextlib.contextmanager
def adapter_twice(llm: Any) -> Iterator[None]:
    """The adapter is in the pushed weights twice, as after a merge that was never undone."""
    from trl.generation.vllm_generation import VLLMGeneration

    walk = VLLMGeneration._iter_named_params

    def twice(self: Any) -> Iterator[tuple[str, Any]]:
        from spark_rl.engines.engine_view import _adapted_weights

        layers = dict(_adapted_weights(self.model))
        for name, weight in walk(self):
            layer = layers.get(name)
            yield name, weight if layer is None else weight + layer.get_delta_weight("default").to(weight.dtype)

    VLLMGeneration._iter_named_params = twice
    try:
        yield
    finally:
        VLLMGeneration._iter_named_params = walk


@contextlib.contextmanager
def wrong_chat_template(llm: Any) -> Iterator[None]:
    """The engine reads another prompt than the trainer trains on: one token more in front."""
    generate = llm.generate

    def templated(prompts: Any, *args: Any, **kwargs: Any) -> Any:
        changed = [
            {**prompt, "prompt_token_ids": [prompt["prompt_token_ids"][0], *prompt["prompt_token_ids"]]}
            for prompt in prompts
        ]
        return generate(changed, *args, **kwargs)

    llm.generate = templated
    try:
        yield
    finally:
        llm.generate = generate


@contextlib.contextmanager
def truncated_vocabulary(llm: Any) -> Iterator[None]:
    """The engine never samples the last tokens of the vocabulary, and nothing in its configuration says so."""
    model = model_of(llm)
    compute = model.compute_logits

    def truncated(*args: Any, **kwargs: Any) -> Any:
        logits = compute(*args, **kwargs)
        if logits is not None:
            logits[..., logits.shape[-1] * 2 // 3 :] = float("-inf")
        return logits

    model.compute_logits = truncated
    try:
        yield
    finally:
        model.compute_logits = compute


@contextlib.contextmanager
def healthy(llm: Any) -> Iterator[None]:
    yield


FULL, LORA = "full", "lora"

FAULTS: dict[str, tuple[str, Fault, str]] = {
    "stale route": (FULL, stale_route, "stale"),
    "one layer not synced": (FULL, one_layer_not_synced, "half-synced"),
    "adapter missing": (LORA, adapter_missing, "adapter missing"),
    "adapter applied twice": (LORA, adapter_twice, "adapter applied twice"),
    "wrong chat template": (FULL, wrong_chat_template, "wrong chat template"),
    "truncated vocabulary": (FULL, truncated_vocabulary, "truncated vocabulary"),
}
"""fault: (tuning, how, the name that the canary should give it)"""
