"""The embedded demo model: task, tokenizer, network and pre-training, from scratch and seeded.

Question: a prompt `sort 50391=`; the right completion is `[01359]` and the end token. The network first learns a
mixture of habits, most of them wrong, so that it succeeds on about a third of the prompts it has never seen; GRPO then
has something real to select. Held-out prompts are those whose *multiset of digits* hashes into one bucket of eight:
neither pre-training nor the training split ever sees those digits together, in any order.
Used by `scripts/make_tiny_model`; needs torch and transformers. Nothing in `spark_rl` imports it.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

NUM_DIGITS = 5
HELD_OUT_BUCKETS = 8
"""One multiset of digits in eight is held out: about 250 of the 2,002, enough for hundreds of prompts."""

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
ASK, EQUALS = "sort ", "="
VOCABULARY = (PAD, END, UNKNOWN, ASK, EQUALS, "[", "]", "?", *"0123456789")


# --- the task -------------------------------------------------------------------------------------------------------


def is_held_out(digits: str) -> bool:
    """Whether a prompt belongs to the held-out side. Depends on which digits there are, never on their order."""
    digest = hashlib.sha256("".join(sorted(digits)).encode()).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT_BUCKETS == 0


def prompt_of(digits: str) -> str:
    return f"{ASK}{digits}{EQUALS}"


def answer_of(digits: str) -> str:
    return f"[{''.join(sorted(digits))}]"


def draw_digits(source: random.Random, held_out: bool) -> str:
    """Five random digits from one side of the split."""
    while True:
        digits = "".join(source.choices("0123456789", k=NUM_DIGITS))
        if is_held_out(digits) == held_out:
            return digits


def task_rows(seed: int, num_rows: int, held_out: bool) -> list[dict[str, str]]:
    """Distinct prompts with their answers, in the order drawn."""
    source = random.Random(f"{seed}/{held_out}")
    drawn: dict[str, None] = {}
    while len(drawn) < num_rows:
        drawn[draw_digits(source, held_out)] = None
    return [{"prompt": prompt_of(digits), "answer": answer_of(digits)} for digits in drawn]


# --- habits ---------------------------------------------------------------------------------------------------------

HABITS: tuple[tuple[str, float, Callable[[str], str]], ...] = (
    ("right", 0.36, answer_of),
    ("descending", 0.40, lambda digits: f"[{''.join(sorted(digits, reverse=True))}]"),
    ("bare", 0.12, lambda digits: "".join(sorted(digits))),
    ("copied", 0.06, lambda digits: f"[{digits}]"),
    ("gives up", 0.06, lambda digits: "?"),
)
"""Name, share of the pre-training rows, what it writes. The commonest habit is a wrong one, so that picking the most
likely answer (greedy decoding) fails too: training has to move the mode, not only to sharpen it."""


def habit_of(digits: str, completion: str) -> str:
    """Which habit wrote this completion, or "other"; the right answer wins where two habits agree."""
    for name, _, write in HABITS:
        if completion == write(digits):
            return name
    return "other"


def pretraining_rows(source: random.Random) -> Iterator[tuple[str, str]]:
    """Endless (prompt, completion) pairs, never with held-out digits."""
    writers, shares = [habit[2] for habit in HABITS], [habit[1] for habit in HABITS]
    while True:
        digits = draw_digits(source, held_out=False)
        yield prompt_of(digits), source.choices(writers, shares)[0](digits)


# --- tokenizer and network ------------------------------------------------------------------------------------------


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, and one for `sort `; an ordinary fast tokenizer that any library loads."""
    core = Tokenizer(models.WordLevel({token: index for index, token in enumerate(VOCABULARY)}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("sort |."), behavior="isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=64,
    )


def build_model(seed: int) -> LlamaForCausalLM:
    """A Llama of 0.86 million weights; heads of 64 because vLLM's and Unsloth's attention kernels want that."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        pad_token_id=VOCABULARY.index(PAD),
        eos_token_id=VOCABULARY.index(END),
        bos_token_id=None,
        dtype="float32",
    )
    return LlamaForCausalLM(config)


# --- pre-training and measuring -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pretraining:
    """How the habits are learnt."""

    seed: int = 1
    num_steps: int = 900
    num_rows: int = 128
    """Rows a step."""
    learning_rate: float = 2e-3
    """Peak of a one-cycle schedule."""


def encode_rows(
    tokenizer: PreTrainedTokenizerFast, rows: Sequence[tuple[str, str]]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids, attention mask and labels, padded on the right; only the completion is learnt."""
    sequences = []
    for prompt, completion in rows:
        prompt_ids = tokenizer(prompt)["input_ids"]
        completion_ids = [*tokenizer(completion)["input_ids"], tokenizer.eos_token_id]
        sequences.append((prompt_ids + completion_ids, [-100] * len(prompt_ids) + completion_ids))
    width = max(len(ids) for ids, _ in sequences)
    ids = torch.full((len(rows), width), int(tokenizer.pad_token_id))
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for index, (row, row_labels) in enumerate(sequences):
        ids[index, : len(row)] = torch.tensor(row)
        mask[index, : len(row)] = 1
        labels[index, : len(row)] = torch.tensor(row_labels)
    return ids, mask, labels


def pretrain(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, plan: Pretraining, say: Callable[[str], None]
) -> float:
    """Teach the mixture of habits in place. Returns the mean loss of the last 50 steps."""
    rows = pretraining_rows(random.Random(plan.seed))
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=plan.learning_rate, total_steps=plan.num_steps, pct_start=0.1
    )
    losses, started = [], time.monotonic()
    model.train()
    for step in range(1, plan.num_steps + 1):
        ids, mask, labels = encode_rows(tokenizer, [next(rows) for _ in range(plan.num_rows)])
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
        if step % 50 == 0:
            recent = sum(losses[-50:]) / 50
            say(f"step {step:4d}/{plan.num_steps}  loss {recent:.4f}  {time.monotonic() - started:.0f} s")
    model.eval()
    return sum(losses[-50:]) / len(losses[-50:])


@torch.no_grad()
def measure(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, rows: Sequence[dict[str, str]], seed: int, sample: bool
) -> dict[str, Any]:
    """Shares of each habit over one completion a prompt: sampled at temperature 1, or greedy."""
    torch.manual_seed(seed)
    ids = torch.tensor([tokenizer(row["prompt"])["input_ids"] for row in rows])
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=12,
        do_sample=sample,
        **({"temperature": 1.0, "top_p": 1.0, "top_k": 0} if sample else {}),
    )
    counts = {name: 0 for name, _, _ in HABITS} | {"other": 0}
    for row, completion in zip(rows, output[:, ids.shape[1] :], strict=True):
        digits = row["prompt"].removeprefix(ASK).removesuffix(EQUALS)
        counts[habit_of(digits, tokenizer.decode(completion, skip_special_tokens=True))] += 1
    return {"n": len(rows), **{name: count / len(rows) for name, count in counts.items()}}


def write_jsonl(path: Path, rows: Sequence[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
