"""How good the forecast is: predictions against published measurements.

In: rows of the case format and their predictions. Out: `Score` with the error table. Pure; the script beside it prints.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError, SparkError
from spark_rl.fit.cases import Prediction, predict_case
from spark_rl.modelcard import ModelCard, card_from_config

Row = Mapping[str, Any]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """JSON objects, one a line. Raises ConfigError naming the line."""
    rows = []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}: line {number}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise ConfigError(f"{path}: line {number}: expected an object")
        rows.append(row)
    return rows


def card_of_row(row: Row) -> ModelCard:
    """The card of one row of model_configs.jsonl (normalised names, the family beside the config)."""
    config = {**(row.get("config") or {}), "model_type": row.get("model_type")}
    return card_from_config(config, str(row.get("model")), source="model_configs.jsonl", language_part=True)


def read_cards(path: Path) -> dict[str, ModelCard]:
    """Cards by name; rows of families we do not know are left out, so that their cases say so."""
    cards = {}
    for row in read_rows(path):
        try:
            cards[str(row.get("model"))] = card_of_row(row)
        except SparkError:
            continue
    return cards


def model_row(row: Row) -> dict[str, Any]:
    """What we compute from a configuration."""
    try:
        card = card_of_row(row)
    except SparkError as error:
        return {
            "model": row.get("model"),
            "params_total": None,
            "kv_bytes_per_token_bf16": None,
            "reason": error.message,
        }
    return {
        "model": row.get("model"),
        "params_total": card.parameter_count,
        "kv_bytes_per_token_bf16": int(card.cache_bytes_per_token(2)),
    }


def predict_rows(rows: Iterable[Row], cards: Mapping[str, ModelCard]) -> list[tuple[Row, Prediction]]:
    return [(row, predict_case(row, cards)) for row in rows]


@dataclass(frozen=True)
class Error:
    """One row's error in percent of its measurement."""

    row: Row
    prediction: Prediction
    percent: float


@dataclass(frozen=True)
class Score:
    errors: tuple[Error, ...]
    """Scored training rows with a measurement and a known length."""
    cap_rows: int
    cap_below: int
    false_fits: tuple[Any, ...]
    false_ooms: tuple[Any, ...]
    fitting_rows: int
    covered: int
    banded: int
    median_width: float | None
    kv_percents: tuple[float, ...]
    unpredicted: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        percents = sorted(abs(error.percent) for error in self.errors)
        return {
            "n": len(percents),
            "median_abs_pct": _rounded(statistics.median(percents) if percents else None),
            "p90_abs_pct": _rounded(percentile(percents, 0.9)),
            "false_fits": len(self.false_fits),
            "false_ooms": len(self.false_ooms),
            "false_ooms_pct": _rounded(100 * len(self.false_ooms) / self.fitting_rows if self.fitting_rows else None),
            "band_cover_pct": _rounded(100 * self.covered / self.banded if self.banded else None),
            "band_median_width": _rounded(self.median_width),
            "cap_rows": self.cap_rows,
            "cap_below": self.cap_below,
            "kv_max_abs_pct": _rounded(max((abs(value) for value in self.kv_percents), default=None)),
            "kv_rows": len(self.kv_percents),
            "unpredicted": dict(self.unpredicted),
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Nearest-rank percentile of sorted values."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def score(pairs: Iterable[tuple[Row, Prediction]]) -> Score:
    """The score over the rows that say they are scored (or say nothing)."""
    errors: list[Error] = []
    cap_rows = cap_below = covered = banded = fitting = 0
    widths: list[float] = []
    false_fits: list[Any] = []
    false_ooms: list[Any] = []
    kv: list[float] = []
    unpredicted: Counter[str] = Counter()
    for row, prediction in pairs:
        if row.get("scored") is False:
            continue
        if prediction.reason is not None:
            unpredicted[prediction.reason] += 1
            continue
        fitting += row.get("verdict") == "fits"
        if row.get("verdict") == "oom" and prediction.verdict == "fits":
            false_fits.append(row.get("id"))
        if row.get("verdict") == "fits" and prediction.verdict == "does_not_fit":
            false_ooms.append(row.get("id"))
        logged = (row.get("kv") or {}).get("concurrency")
        if row.get("method") == "vllm":
            if logged and prediction.kv_concurrency is not None:
                kv.append(concurrency_error(prediction.kv_concurrency, logged, row["kv"]))
            continue
        measured = row.get("measured_gib")
        if not measured or prediction.predicted_gib is None:
            continue
        assert prediction.low_gib is not None and prediction.high_gib is not None
        percent = 100 * (prediction.predicted_gib / measured - 1)
        banded += 1
        covered += prediction.low_gib <= measured <= prediction.high_gib
        if prediction.low_gib > 0:
            widths.append(prediction.high_gib / prediction.low_gib)
        if row.get("length_is_cap"):
            cap_rows += 1
            cap_below += percent < 0
        elif row.get("seq_len"):
            errors.append(Error(row, prediction, percent))
    return Score(
        tuple(errors),
        cap_rows,
        cap_below,
        tuple(false_fits),
        tuple(false_ooms),
        fitting,
        covered,
        banded,
        statistics.median(widths) if widths else None,
        tuple(kv),
        dict(unpredicted),
    )


TERM_DIGIT_GIB = 0.01
"""The budget's terms are logged with two digits; four of them are added."""


def concurrency_error(predicted: float, logged: float, kv: Mapping[str, Any]) -> float:
    """Percent off, less what the last digit of the logged terms leaves open."""
    difference = abs(predicted - logged)
    cache = kv.get("kv_gib")
    open_share = 2 * TERM_DIGIT_GIB / cache if cache and cache > 0 else 0.0
    left = max(0.0, difference - 0.005 - open_share * predicted)
    return 100 * left / logged
