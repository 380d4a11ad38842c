"""The JSON Schema reward: does the completion hold JSON that the schema accepts?

In:  a completion (see json_text.py for where the JSON is looked for) and a schema from the task or from a column.
Out: 1.0, or 0.0 with one reason; None when a row's schema cannot be used. Drafts 3, 4, 6, 7, 2019-09 and 2020-12.
Validation runs in a killable process, because a schema's patterns meet text that a model wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator

from spark_rl.errors import ConfigError
from spark_rl.rewards import schema_worker
from spark_rl.rewards.base import Reward, RewardOptions, Row, Verdict, column
from spark_rl.rewards.json_text import NotJson, find_json, parse_json
from spark_rl.rewards.workers import KillablePool, Outcome


class JsonSchemaOptions(RewardOptions):
    schema_: Mapping[str, Any] | bool | None = None
    """The schema itself, as a table in the task file. {"type" = "object"} with means = "format" asks for JSON at all."""
    file: str | None = None
    """JSON file with the schema, relative to the task file."""
    column: str | None = None
    """Column with each row's schema, as an object or as JSON text."""
    formats: Literal["draft", "on", "off"] = "draft"
    """Whether "format" is enforced; "draft": through draft-07 as those drafts ask, not from 2019-09 on."""
    time_limit_s: float = 2.0

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, data: Any) -> Any:
        if isinstance(data, dict) and "schema" in data:
            data = {**data, "schema_": data["schema"]}
            del data["schema"]
        return data

    @model_validator(mode="after")
    def _one_source(self) -> JsonSchemaOptions:
        if sum(source is not None for source in (self.schema_, self.file, self.column)) != 1:
            raise ValueError("give exactly one of schema, file and column")
        return self


class JsonSchema(Reward[JsonSchemaOptions]):
    """1.0 when the JSON satisfies the schema."""

    kind = "json_schema"
    options_type = JsonSchemaOptions

    def __init__(self, name: str | None = None, base_dir: Path | None = None, **options: Any) -> None:
        super().__init__(name, base_dir, **options)
        self.pool = KillablePool(schema_worker, self.options.time_limit_s, max_workers=2)
        self.schema: str | None = None
        if self.options.file is not None:
            self.schema = _read_schema(self.base_dir / self.options.file)
        elif self.options.schema_ is not None:
            self.schema = json.dumps(self.options.schema_)

    def judge(self, completion: str, row: Row) -> Verdict:
        return self.judge_batch([completion], [row])[0]

    def judge_batch(self, completions: Sequence[str], rows: Sequence[Row]) -> list[Verdict]:
        found = [find_json(completion) for completion in completions]
        payloads = [
            {
                "schema": self._schema(row),
                "has_value": one.fault is None,
                "value": one.value,
                "formats": self.options.formats,
            }
            for one, row in zip(found, rows, strict=True)
        ]
        outcomes = self.pool.run(payloads)
        return [self._verdict(one.fault, one.where, outcome) for one, outcome in zip(found, outcomes, strict=True)]

    def close(self) -> None:
        self.pool.close()

    def _schema(self, row: Row) -> str | None:
        if self.schema is not None:
            return self.schema
        assert self.options.column is not None
        value = column(row, self.options.column)
        return value if isinstance(value, str) or value is None else json.dumps(value)

    def _verdict(self, fault: str | None, where: str, outcome: Outcome) -> Verdict:
        if outcome.fault == "raised":
            return Verdict(None, f"the validator raised {outcome.detail}", is_bug=True)
        if outcome.fault is not None:
            return Verdict(
                0.0, f"not judged within {self.options.time_limit_s:g} s ({outcome.fault}: {outcome.detail})"
            )
        if unusable := outcome.value.get("unusable"):
            if self.options.column is None:
                raise ConfigError(f"the JSON schema of reward {self.__name__!r} cannot be used: {unusable}")
            return Verdict(None, f"the row's schema cannot be used: {unusable}")
        if fault is not None:
            return Verdict(0.0, fault)
        if violation := outcome.value.get("violation"):
            return Verdict(0.0, violation)
        return Verdict(1.0, f"the {where} satisfies the schema")


def _read_schema(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
        parse_json(text)
    except OSError as error:
        raise ConfigError(f"schema file {path} cannot be read: {error.strerror}") from None
    except (NotJson, UnicodeDecodeError) as error:
        raise ConfigError(f"schema file {path} is not usable: {error}") from None
    return text
