"""Giving memory back in the middle of a TRL run, without changing what is learned: `shed_memory(trainer) -> what was done`.

Called at a step boundary when the guard finds memory short. Smaller pieces, the same sums: log-prob passes in half the
batch, activations recomputed in place of kept, Unsloth's loss in twice as many mini-batches; then caches are emptied.
"""

from __future__ import annotations

import gc
from typing import Any


def shed_memory(trainer: Any) -> list[str]:
    """What was changed, in words. Nothing is changed twice; the caches are emptied each time."""
    done: list[str] = []
    args, model = trainer.args, trainer.model
    if not getattr(model, "is_gradient_checkpointing", False) and hasattr(model, "gradient_checkpointing_enable"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if hasattr(model, "enable_input_require_grads"):
            model.enable_input_require_grads()  # an adapter's base is frozen: without it nothing would be recomputed
        done.append("gradient checkpointing on")
    if getattr(args, "per_device_train_batch_size", 1) > 1:
        # TRL reads it anew for every log-prob pass and nowhere else once training has begun.
        args.per_device_train_batch_size = max(1, args.per_device_train_batch_size // 2)
        done.append(f"log-prob passes of {args.per_device_train_batch_size} sequences")
    mini_batches = getattr(args, "unsloth_grpo_mini_batch", None)
    if mini_batches:
        args.unsloth_grpo_mini_batch = mini_batches * 2
        done.append(f"loss in {args.unsloth_grpo_mini_batch} mini-batches")
    gc.collect()
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    done.append("caches emptied")
    return done
