"""Where a model's configuration comes from: a folder, the hub's local cache, or a card that ships with the package.

In: a hub id, a path or "embedded". Out: `ModelCard`, whose `source` says where it was read. Reads small files only; the
headers of safetensors files where they are on disk; never the network.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError, SparkError, did_you_mean
from spark_rl.modelcard.families import card_from_config
from spark_rl.modelcard.shape import ModelCard
from spark_rl.models import cached_folder, read_config_file, resolve_model

CARDS_DIR = Path(__file__).resolve().parents[1] / "data" / "cards"
MAX_HEADER_BYTES = 100_000_000
"""The safetensors format allows no larger header."""


@cache
def shipped_cards() -> Mapping[str, Mapping[str, Any]]:
    """The cards that ship with the package, by every name they go by: `config`, and a `note` where one is due."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted(CARDS_DIR.glob("*.json")):
        for card in json.loads(path.read_text(encoding="utf-8")):
            for name in card["names"]:
                found[name] = card
    return found


def _shipped_card(name: str) -> ModelCard:
    stored = shipped_cards()[name]
    card = card_from_config(stored["config"], name, source="card shipped with spark_rl")
    return replace(card, notes=(stored["note"],)) if "note" in stored else card


def stored_parameter_count(folder: Path) -> int | None:
    """Elements of all tensors in a folder's safetensors headers; None without such files or when one is damaged."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return None
    total = 0
    for path in files:
        try:
            with path.open("rb") as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                if length > MAX_HEADER_BYTES:
                    return None
                header = json.loads(stream.read(length))
        except (OSError, ValueError, struct.error):
            return None
        for name, tensor in header.items():
            if name != "__metadata__":
                count = 1
                for size in tensor.get("shape", ()):
                    count *= size
                total += count
    return total


def card_from_folder(folder: Path, name: str) -> ModelCard:
    """The card of a model folder, checked against its safetensors headers."""
    card = card_from_config(read_config_file(folder / "config.json"), name, source=f"config.json in {folder.name}")
    stored = stored_parameter_count(folder)
    if stored is None:
        return card
    if stored == card.parameter_count or (card.tied and stored == card.parameter_count + card.vocab * card.hidden):
        return replace(card, source=f"{card.source}; the safetensors headers have the same {stored:,} parameters")
    note = (
        f"the safetensors headers hold {stored:,} elements, the configuration describes {card.parameter_count:,} "
        "(quantised or extended checkpoint)"
    )
    return replace(card, notes=(*card.notes, note))


def find_card(model_id: str, revision: str | None = None) -> ModelCard:
    """The card of a model by name or path. Raises ConfigError naming the nearest known model, or Refused for a VLM."""
    path = Path(model_id).expanduser()
    if path.is_file() and path.suffix == ".json":
        return card_from_config(read_config_file(path), path.stem, source=str(path.name))
    shipped = shipped_cards()
    try:
        resolved = resolve_model(model_id)
    except ConfigError:
        if model_id in shipped:
            return _shipped_card(model_id)
        raise
    if isinstance(resolved, Path):
        return card_from_folder(resolved, model_id)
    folder = cached_folder(model_id, revision)
    if folder is not None:
        return card_from_folder(folder, model_id)
    if model_id in shipped:
        return _shipped_card(model_id)
    raise ConfigError(
        f"model {model_id!r} is not on this machine and has no card here",
        hint=f"{_nearest_model(model_id, shipped)}give its config.json: --model path/to/config.json",
    )


def is_mixture(model_id: str, revision: str | None = None) -> bool | None:
    """Whether a model is a mixture of experts; None when its configuration is not here or not of a known family."""
    try:
        return find_card(model_id, revision).is_moe
    except SparkError:
        return None


def _nearest_model(model_id: str, shipped: Mapping[str, Any]) -> str:
    hint = did_you_mean(model_id, shipped)
    if hint is None:
        tails = {name.rsplit("/", 1)[-1].lower(): name for name in shipped}
        guess = did_you_mean(model_id.rsplit("/", 1)[-1].lower(), tails)
        if guess:
            hint = f"did you mean {tails[guess.split(chr(39))[1]]!r}?"
    return f"{hint} or " if hint else ""
