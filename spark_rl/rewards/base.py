"""What a reward is: one completion and one row of the data in, a value or "does not apply" out, always with a reason.

In:  completions (strings or chat messages) and rows (the columns of the data set).
Out: verdicts. `Reward.__call__` is TRL's shape, so that every reward works alone in any TRL script.
Here too are the rules at the boundary: what None, NaN, infinity, an exception, a scalar or a wrong length mean.
Must not import: torch, transformers, trl, sympy, jsonschema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from spark_rl.errors import ConfigError, Problem, did_you_mean

Row = Mapping[str, Any]
Completion = str | Sequence[Mapping[str, Any]]
Means = Literal["format", "correct", "other"]


@dataclass(frozen=True)
class Verdict:
    """What one reward says about one completion."""

    value: float | None
    """None means "does not apply": the part is left out of this row's total, it is never counted as 0."""
    reason: str
    """A short sentence that the gate and the TUI show beside the value."""
    is_bug: bool = False
    """The reward itself failed (raised, NaN, hung); `value` is then None and the row has no total."""


@dataclass(frozen=True)
class RewardPart:
    """One part of a composite reward, as the task file states it."""

    name: str
    """Metric name: TRL logs it as rewards/NAME/mean."""
    kind: str
    """A kind of the registry, such as "math" or "format"."""
    weight: float = 1.0
    means: Means = "other"
    """"correct" parts decide held-out success; "format" parts may gate them."""
    options: Mapping[str, Any] = field(default_factory=dict)


class RewardBug(ConfigError):
    """A reward raised, hung, or returned something that is not one number or None per completion."""


class RewardOptions(BaseModel):
    """Options that every kind takes; each kind adds its own. Unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    correct_at: float = 1.0
    """A part that means "correct" is satisfied from this value on."""


OptionsT = TypeVar("OptionsT", bound=RewardOptions)


class Reward(Generic[OptionsT]):
    """Base of all rewards. A subclass states `kind`, `options_type` and `judge`; the rest follows.

    Use alone: `ExactMatch(answer="solution")` is a callable for TRL's `reward_funcs`.
    """

    kind: ClassVar[str]
    options_type: ClassVar[type[RewardOptions]] = RewardOptions
    __name__: str

    def __init__(self, name: str | None = None, base_dir: Path | None = None, **options: Any) -> None:
        self.__name__ = name or self.kind
        self.base_dir = base_dir or Path()
        self.options: OptionsT = read_options(self.options_type, options, where=f"reward {self.__name__!r}")  # type: ignore[assignment]

    def judge(self, completion: str, row: Row) -> Verdict:
        """The verdict on one completion. May raise; the callers below turn that into a bug verdict."""
        raise NotImplementedError

    def judge_batch(self, completions: Sequence[str], rows: Sequence[Row]) -> list[Verdict]:
        """One verdict per completion, in order; an exception spoils only its own sample."""
        return [guarded_judge(self, completion, row) for completion, row in zip(completions, rows, strict=True)]

    def __call__(self, completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        """TRL's reward function. Raises RewardBug rather than hand TRL a made-up number."""
        texts = [completion_text(completion) for completion in completions]
        verdicts = self.judge_batch(texts, rows_from_columns(len(texts), columns))
        raise_on_bugs(self.__name__, verdicts)
        return [verdict.value for verdict in verdicts]

    def check_rows(self, rows: Sequence[Row]) -> None:
        """Asked before a model is loaded. Raises ConfigError for data that this reward cannot judge by: a column that is not
        there, a kind of value it cannot take. What a completion may bring about is not asked here.
        """
        if rows:
            guarded_judge(self, "", rows[0])

    def close(self) -> None:
        """Free helper processes; a reward without any has nothing to do."""


def read_options(options_type: type[RewardOptions], options: Mapping[str, Any], where: str) -> RewardOptions:
    """Validated options, or a ConfigError that names every bad one and the nearest known name."""
    try:
        return options_type.model_validate(dict(options))
    except ValidationError as error:
        known = list(options_type.model_fields)
        raise ConfigError([_option_problem(where, item, known) for item in error.errors()]) from None


def _option_problem(where: str, item: Any, known: Sequence[str]) -> Problem:
    key = ".".join(str(step) for step in item["loc"])
    if item["type"] == "extra_forbidden":
        hint = did_you_mean(key, known) or "known options: " + ", ".join(known)
        return Problem(where, key, "unknown option", hint)
    return Problem(where, key or None, item["msg"][:1].lower() + item["msg"][1:])


def column(row: Row, name: str) -> Any:
    """The row's value of a column; a column that does not exist is the task's fault, not the completion's."""
    if name not in row:
        raise ConfigError(
            f"the data has no column {name!r} that a reward reads",
            did_you_mean(name, row) or "columns: " + ", ".join(sorted(row)),
        )
    return row[name]


def completion_text(completion: Completion) -> str:
    """The text that is judged: the string itself, or the last assistant message with its tool calls written out."""
    if isinstance(completion, str):
        return completion
    messages: Sequence[Any] = [completion] if isinstance(completion, Mapping) else completion
    if not isinstance(messages, Sequence) or not all(isinstance(message, Mapping) for message in messages):
        raise RewardBug(f"a completion is a string or a list of messages, not {type(completion).__name__}")
    spoken = [message for message in messages if message.get("role", "assistant") == "assistant"]
    return _message_text(spoken[-1]) if spoken else ""


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        text = content
    elif isinstance(content, Sequence):
        text = "".join(str(piece.get("text", "")) for piece in content if isinstance(piece, Mapping))
    else:
        text = ""
    calls = [call.get("function", call) for call in message.get("tool_calls") or () if isinstance(call, Mapping)]
    written = [
        f"<tool_call>\n{json.dumps(dict(call), ensure_ascii=False, default=str)}\n</tool_call>" for call in calls
    ]
    return "\n".join([text, *written] if text or not written else written)


def rows_from_columns(num_rows: int, columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """TRL's keyword columns as rows; what is not one value per completion (trainer_state, log_metric) is left out."""
    kept = {
        "prompt" if name == "prompts" else name: values
        for name, values in columns.items()
        if isinstance(values, Sequence) and not isinstance(values, str | bytes) and len(values) == num_rows
    }
    return [{name: values[index] for name, values in kept.items()} for index in range(num_rows)]


def as_verdict(value: Any, reason: str = "") -> Verdict:
    """The one meaning of whatever a reward returned for one completion.

    A finite number is the value; None does not apply; NaN, infinity and everything else are bugs of the reward.
    """
    if value is None:
        return Verdict(None, reason or "does not apply")
    try:
        number = float(value)
    except (TypeError, ValueError):
        return Verdict(None, f"the reward returned {type(value).__name__} instead of a number or None", is_bug=True)
    if isinstance(value, str) or not math.isfinite(number):
        shown = repr(value) if isinstance(value, str) else str(number)
        return Verdict(None, f"the reward returned {shown}, which is not a finite number", is_bug=True)
    return Verdict(number, reason or f"scored {number:g}")


def check_shape(name: str, result: Any, expected: int) -> list[Any]:
    """The result as a list of `expected` values (-1: any number); RewardBug with expected and actual when it is not."""
    try:
        values = None if isinstance(result, str | bytes | Mapping) else list(result)
    except TypeError:  # a number, None, or an array of no dimension
        values = None
    if values is None:
        raise RewardBug(
            f"reward {name!r} returned one {type(result).__name__}, expected a list of {expected} values",
            "return one value (or None) per completion: a single number would give every completion the same score",
        )
    if expected >= 0 and len(values) != expected:
        raise RewardBug(
            f"reward {name!r} returned {len(values)} values, expected {expected}",
            "return one value (or None) per completion, in order",
        )
    return values


def guarded_judge(reward: Reward[Any], completion: str, row: Row) -> Verdict:
    """`judge` with the boundary rules applied: an exception becomes a bug verdict that names it."""
    try:
        return settled(reward.judge(completion, row))
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001  reward boundary: any exception is the reward's bug, counted and shown
        return exception_verdict(error)


def settled(verdict: Verdict) -> Verdict:
    """The verdict with its value checked: NaN and infinity become bugs."""
    value = verdict.value
    if value is None or verdict.is_bug or (type(value) is float and math.isfinite(value) and verdict.reason):
        return verdict
    return as_verdict(verdict.value, verdict.reason)


def exception_verdict(error: BaseException) -> Verdict:
    """The verdict for a reward that raised."""
    return Verdict(None, f"the reward raised {type(error).__name__}: {shorten(str(error), 200)}", is_bug=True)


def raise_on_bugs(name: str, verdicts: Sequence[Verdict]) -> None:
    """RewardBug with the count and the first reason, when there is any bug."""
    reasons = [verdict.reason for verdict in verdicts if verdict.is_bug]
    if reasons:
        raise RewardBug(
            f"reward {name!r} failed on {len(reasons)} of {len(verdicts)} completions: {reasons[0]}",
            "mend the reward: a failure is not a score of 0",
        )


def shorten(text: str, limit: int = 80) -> str:
    """One line of at most `limit` characters, for reasons."""
    flat = " ".join(text[: 4 * limit].split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."
