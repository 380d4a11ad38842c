"""vLLM's CPU build, made to read the weights it is given. Only used on a host without a GPU.

Its linear layers pack a copy of their weights when the model is loaded (oneDNN, AVX-512 and AMX kernels) and drop the
parameter, so a later sync has nothing to write to; where packing is not available they read the parameter. Here every
layer reads its parameter, on every processor: what is pushed is what is sampled with.
"""

from __future__ import annotations

from typing import Any


def read_live_weights() -> None:
    """Call before the engine is built; layers that are built afterwards compute with `layer.weight` as it is then."""
    replace_gemm(_live)


def replace_gemm(dispatch: Any) -> None:
    """Put `dispatch(layer, remove_weight)` in the place of vLLM's choice of a CPU kernel, which its layers import by name from
    this module when a model is loaded."""
    from vllm.model_executor.layers import utils

    utils.dispatch_cpu_unquantized_gemm = dispatch


def _live(layer: Any, remove_weight: bool) -> None:
    import torch

    layer.cpu_linear = torch.nn.functional.linear
