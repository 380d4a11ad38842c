"""Log-probabilities of fixed completions with an adapter: by vLLM as a LoRA request, and by its base alone. JSON on argv[4].

argv: base folder, adapter folder, tokens file ([[prompt ids, completion ids], ...]), result file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(base: str, adapter: str, tokens: str, out: str) -> None:
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    rows = json.loads(Path(tokens).read_text())
    llm = LLM(
        model=base,
        dtype="float32",
        enforce_eager=True,
        max_model_len=64,
        enable_lora=True,
        max_lora_rank=16,
        max_num_seqs=8,
    )
    sampling = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
    asked: list[Any] = [{"prompt_token_ids": [*prompt, *completion]} for prompt, completion in rows]

    def logprobs(request: Any) -> list[list[float]]:
        outputs = llm.generate(asked, sampling_params=sampling, use_tqdm=False, lora_request=request)
        return [
            [step[token].logprob for step, token in zip(output.prompt_logprobs[len(prompt) :], completion, strict=True)]
            for output, (prompt, completion) in zip(outputs, rows, strict=True)
        ]

    found = {"adapter": logprobs(LoRARequest("run", 1, adapter)), "base": logprobs(None)}
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:5])
