"""The table of combinations in the README, made from `plan.choose_route`: every (engine, rollout, tuning, machine)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from spark_rl.rollout.plan import Refusal, Route, Setup, Tuning, choose_route

BEGIN, END = "<!-- routes: made by scripts/readme -->", "<!-- routes: end -->"

ENGINES = ("unsloth", "plain")
ROLLOUTS = ("native", "unsloth_vllm", "vllm_colocate", "vllm_server")
MACHINES = ("cpu", "discrete", "unified")
MACHINE_TITLES = {"cpu": "no GPU", "discrete": "NVIDIA card", "unified": "DGX Spark"}


def every_setup() -> Iterator[Setup]:
    for engine in ENGINES:
        for rollout in ROLLOUTS:
            for machine in MACHINES:
                for tuning in get_args(Tuning):
                    quantization = "bnb-4bit" if tuning == "qlora" else "none"
                    yield Setup(engine, rollout, tuning, quantization, machine, is_gb10=machine == "unified")  # type: ignore[arg-type]


def routes_table() -> str:
    """Markdown: one line an (engine, rollout), one column a machine, and the reason of every refusal below it."""
    answers = {setup: choose_route(setup) for setup in every_setup()}
    reasons: list[Refusal] = []
    lines = [
        "| engine | rollout | " + " | ".join(MACHINE_TITLES[machine] for machine in MACHINES) + " |",
        "|---|---|" + "---|" * len(MACHINES),
    ]
    for engine in ENGINES:
        for rollout in ROLLOUTS:
            cells = []
            for machine in MACHINES:
                chosen = [
                    (setup.tuning, answer)
                    for setup, answer in answers.items()
                    if (setup.engine, setup.rollout, setup.machine) == (engine, rollout, machine)
                ]
                cells.append(_cell(chosen, reasons))
            lines.append(f"| {engine} | {rollout} | " + " | ".join(cells) + " |")
    notes = [
        f"{number}. {refusal.reason}. Either {refusal.ways_out[0]}, or {refusal.ways_out[1]}."
        for number, refusal in enumerate(reasons, start=1)
    ]
    return "\n".join([*lines, "", "Refused, because:", "", *notes])


def _cell(chosen: list[tuple[Tuning, Route | Refusal]], reasons: list[Refusal]) -> str:
    allowed = [tuning for tuning, answer in chosen if isinstance(answer, Route)]
    refused: dict[int, list[str]] = {}
    for tuning, answer in chosen:
        if isinstance(answer, Refusal):
            if answer not in reasons:
                reasons.append(answer)
            refused.setdefault(reasons.index(answer) + 1, []).append(tuning)
    words = [", ".join(allowed)] if allowed else []
    words += [f"no {', '.join(tunings)} ({number})" for number, tunings in refused.items()]
    return "; ".join(words)


def between_markers(text: str) -> str | None:
    """What stands between the markers of a README; None without them."""
    _, begin, rest = text.partition(BEGIN)
    inside, end, _ = rest.partition(END)
    return inside.strip() if begin and end else None


def with_table(text: str) -> str:
    """The README with the table renewed. Raises ValueError without markers."""
    if between_markers(text) is None:
        raise ValueError(f"the text has no {BEGIN} ... {END}")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{routes_table()}\n\n{END}{after}"
