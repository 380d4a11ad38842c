"""Which model a name means: the embedded one, a fetched one, a folder, or a hub id. Light: no torch, no transformers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError, Refused

EMBEDDED = "embedded"
EMBEDDED_DIR = Path(__file__).parent / "data" / "tiny"

FETCHABLE = ("smollm2-135m",)
"""Models that `spark-rl models fetch` brings without a hub."""

VISION_KEYS = ("vision_config", "vision_tower", "mm_vision_tower", "vision_tower_config", "visual", "image_token_id")
"""Keys of a config.json that only a model with a vision tower has."""


def models_dir() -> Path:
    """Where fetched models live: SPARK_RL_MODELS, else the user's cache."""
    chosen = os.environ.get("SPARK_RL_MODELS")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(chosen) if chosen else cache / "spark-rl" / "models"


def resolve_model(model_id: str) -> Path | str:
    """A folder, or a hub id as it is. Raises ConfigError for a path or a fetchable model that is not there."""
    if model_id == EMBEDDED:
        return EMBEDDED_DIR
    if model_id in FETCHABLE:
        folder = models_dir() / model_id
        if not (folder / "config.json").is_file():
            raise ConfigError(f"model {model_id!r} has not been fetched", f"run: spark-rl models fetch {model_id}")
        return folder
    path = Path(model_id).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(f"{model_id}: no config.json in this folder", "give a folder saved with save_pretrained")
        return path.resolve()
    if model_id.startswith((".", "/", "~")) or model_id.count("/") != 1:
        raise ConfigError(f"{model_id}: no such model folder", 'a hub id reads "owner/name"')
    return model_id


def model_folder(model_id: str, revision: str | None = None) -> Path | None:
    """The folder with the model's files: as given, or the hub's local cache; None when a hub model is not cached."""
    resolved = resolve_model(model_id)
    if isinstance(resolved, Path):
        return resolved
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(resolved, "config.json", revision=revision)
    return Path(found).parent if isinstance(found, str) else None


def read_config(model_id: str, revision: str | None = None) -> dict[str, Any] | None:
    """The model's config.json, or None when it is not on this machine. Raises ConfigError when it cannot be read."""
    folder = model_folder(model_id, revision)
    if folder is None:
        return None
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder / 'config.json'}: cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{folder / 'config.json'}: expected an object")
    return config


def has_vision_tower(config: Mapping[str, Any]) -> bool:
    """Whether a config.json describes a model that sees."""
    return any(config.get(key) is not None for key in VISION_KEYS)


def refuse_vision_model(model_id: str, revision: str | None = None) -> None:
    """Raises Refused for a vision-language model: text-only GRPO teaches it to ignore the image."""
    config = read_config(model_id, revision)
    if config is not None and has_vision_tower(config):
        raise Refused(
            f"{model_id} is a vision-language model: reinforcement learning of these is reference-only here, "
            "because text-only GRPO teaches the model to ignore the image",
            "take the text model of the same family",
        )
