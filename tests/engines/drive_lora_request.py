"""Greedy completions with an adapter as a LoRA request of vLLM, and by its base alone, with their log-probabilities.

argv: base folder, adapter folder, file with prompts ([ids, ...]), result file: {"adapter" | "base": [[ids, logprobs], ...]}.
(vLLM's CPU build cannot score a prompt with an adapter on, so completions are compared.)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(base: str, adapter: str, tokens: str, out: str) -> None:
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    prompts = json.loads(Path(tokens).read_text())
    llm = LLM(
        model=base,
        dtype="float32",
        enforce_eager=True,
        max_model_len=64,
        enable_lora=True,
        max_lora_rank=16,
        max_num_seqs=8,
    )
    sampling = SamplingParams(max_tokens=8, temperature=0.0, logprobs=0)
    asked: list[Any] = [{"prompt_token_ids": ids} for ids in prompts]

    def answers(request: Any) -> list[Any]:
        outputs = llm.generate(asked, sampling_params=sampling, use_tqdm=False, lora_request=request)
        firsts = [output.outputs[0] for output in outputs]
        return [
            [
                list(one.token_ids),
                [step[token].logprob for step, token in zip(one.logprobs, one.token_ids, strict=True)],
            ]
            for one in firsts
        ]

    found = {"adapter": answers(LoRARequest("run", 1, adapter)), "base": answers(None)}
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:5])
