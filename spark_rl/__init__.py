"""spark_rl: GRPO for small language models on one GPU, with a fit check before and a person's signature in between.

Importing this package loads nothing heavy: torch, transformers, trl, unsloth and vllm stay out until a worker starts.
"""

__version__ = "0.1.0"
