"""What a sign-off is bound to: named digests of reward, task, data, chat template, model and sampling settings.

In: a `Subject`: recipe, task, data, model folder. Out: name -> digest or value, so that a mismatch names what changed. Hashes files; imports neither torch nor transformers.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_rl.errors import ConfigError
from spark_rl.gate.subject import Subject
from spark_rl.recipe import Recipe
from spark_rl.rewards.base import RewardPart
from spark_rl.rewards.registry import KINDS
from spark_rl.task import Task

FORMAT = "1"
"""Raised when the same run would get other digests; sign-offs of an older format then ask for a new look."""

PACKAGE = "spark_rl"
PACKAGE_ROOT = Path(__file__).resolve().parents[2]
SCORING_MODULES = ("spark_rl.rewards.", "spark_rl.sandbox")
"""Our own modules that take part in a score; a change elsewhere in the package leaves sign-offs standing."""
NOT_SCORING = frozenset({"pydantic"})
"""Packages that only read options: another version scores the same."""

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".gguf")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
)
NUM_BLOCKS, BLOCK_BYTES = 64, 4096
"""Of each weight file, its start, its size and 64 blocks of 4 KiB spread over it are read: another fine-tune of the
same shape changes nearly every weight, so 256 KiB tell them apart without reading a hundred gigabytes."""

RESCORABLE = ("task", "reward", "data")
"""Names (up to a colon) that may change between a draw and its rescoring; the others make it another draw."""


def fingerprint(subject: Subject) -> dict[str, str]:
    """Name -> digest or value. Raises ConfigError when a file it must read is not there."""
    task = subject.task
    return {
        "format": FORMAT,
        "task file": task.file_digest(),
        **_reward_digests(task),
        "data": subject.examples.digest(),
        "chat template": _chat_template_digest(task, subject.model_dir),
        **_model_digests(subject.recipe, subject.model_dir),
        **_sampling_values(subject.recipe),
    }


def changes(signed: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs, in words, in the order of `now`; short values are shown, digests are not."""
    found = []
    for name in (*now, *(name for name in signed if name not in now)):
        before, after = signed.get(name), now.get(name)
        if before == after:
            continue
        if before is None:
            found.append(f"{name} (new)")
        elif after is None:
            found.append(f"{name} (gone)")
        elif max(len(before), len(after)) < 40:
            found.append(f"{name} (was {before}, now {after})")
        else:
            found.append(name)
    return found


def is_rescorable(name: str) -> bool:
    """Whether a difference under this name can be met by scoring the same samples again."""
    return name.partition(":")[0].partition(" ")[0] in RESCORABLE


def _reward_digests(task: Task) -> dict[str, str]:
    read: dict[Path, Source] = {}
    combination = [
        task.scoring.model_dump(mode="json"),
        [part.name for part in task.reward_parts],
        _source_digest(PACKAGE_ROOT / "spark_rl" / "rewards" / "composite.py", PACKAGE_ROOT, read),
    ]
    parts = {f"reward: {part.name}": _part_digest(part, task.base_dir, read) for part in task.reward_parts}
    return {**parts, "reward: how parts combine": _digest(combination)}


@dataclass(frozen=True)
class Source:
    """One Python file: read once, though several parts import it."""

    digest: str
    imports: frozenset[str]


def _part_digest(part: RewardPart, base_dir: Path, read: dict[Path, Source]) -> str:
    module = KINDS[part.kind].split(":")[0]
    source = PACKAGE_ROOT.joinpath(*module.split(".")).with_suffix(".py")
    content = [
        part.kind,
        part.weight,
        part.means,
        json.loads(json.dumps(dict(part.options), sort_keys=True, default=str)),
        _source_digest(source, PACKAGE_ROOT, read),
        [_option_file_digest(path, base_dir, read) for path in _option_files(part, base_dir)],
    ]
    return _digest(content)


def _option_files(part: RewardPart, base_dir: Path) -> Iterator[Path]:
    """Every file that an option names (a user's function, a schema, tests)."""
    for name, value in sorted(part.options.items()):
        if not isinstance(value, str) or "\0" in value or len(value) > 1024:
            continue
        path = base_dir / value
        try:
            there = path.is_file()
        except OSError:
            there = False
        if there:
            yield path
        elif part.kind == "python" and name == "file":
            raise ConfigError(f"reward file {path} does not exist", "paths in a task file are relative to that file")


def _option_file_digest(path: Path, base_dir: Path, read: dict[Path, Source]) -> str:
    return _source_digest(path, base_dir, read) if path.suffix == ".py" else _file_digest(path)


def _source_digest(start: Path, root: Path, read: dict[Path, Source]) -> str:
    """Digest of a Python file, of the files beside it or of ours that it imports, and of the packages' versions."""
    sources: dict[str, str] = {}
    packages: set[str] = set()
    waiting = [start]
    while waiting:
        path = waiting.pop()
        key = _relative(path, root)
        if key in sources:
            continue
        if not path.is_file():
            raise ConfigError(f"{path}: no such reward source")
        if path not in read:
            source = path.read_bytes()
            read[path] = Source(hashlib.sha256(source).hexdigest(), _imported_modules(source))
        sources[key] = read[path].digest
        for module in read[path].imports:
            top = module.split(".")[0]
            if top == PACKAGE:
                waiting += _module_files(module, [PACKAGE_ROOT]) if module.startswith(SCORING_MODULES) else []
            elif root == PACKAGE_ROOT or not list(_module_files(top, [path.parent, root])):
                packages |= {top} - sys.stdlib_module_names - NOT_SCORING
            else:
                waiting += _module_files(module, [path.parent, root])
    return _digest([sources, {name: _version(name) for name in sorted(packages)}])


def _relative(path: Path, root: Path) -> str:
    """A name that stays the same when the whole folder moves."""
    for base in (root.resolve(), PACKAGE_ROOT):
        if path.resolve().is_relative_to(base):
            return path.resolve().relative_to(base).as_posix()
    return path.name


@functools.lru_cache(maxsize=256)
def _imported_modules(source: bytes) -> frozenset[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return frozenset()  # a broken file is told where it is imported; its bytes are in the digest
    modules: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            modules.update([base] if base else [], (f"{base}.{alias.name}".lstrip(".") for alias in node.names))
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):  # statements only: ten times fewer nodes
            waiting += [child for child in _listed(getattr(node, block, None)) if isinstance(child, ast.AST)]
    return frozenset(modules)


def _listed(value: object) -> list[object]:
    """A lambda's body is an expression, every other is a list of statements."""
    return value if isinstance(value, list) else []


def _module_files(module: str, roots: Iterable[Path]) -> Iterator[Path]:
    for root in roots:
        base = root.joinpath(*module.split("."))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file() and path.name != "registry.py":  # naming another kind changes no score
                yield path
                return


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _chat_template_digest(task: Task, model_dir: Path | None) -> str:
    """The template as the model folder holds it, with the arguments the task gives it."""
    prompt = task.prompt
    if not prompt.chat:
        return "not used"
    template = _chat_template(model_dir) if model_dir is not None else None
    return _digest([template, prompt.enable_thinking, prompt.template_arguments])


def _chat_template(model_dir: Path) -> Any:
    own = model_dir / "chat_template.jinja"
    if own.is_file():
        return own.read_bytes().decode("utf-8", errors="replace")
    for name in ("chat_template.json", "tokenizer_config.json"):
        path = model_dir / name
        if path.is_file():
            try:
                value = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise ConfigError(f"{path}: cannot be read: {error}") from None
            if isinstance(value, dict) and value.get("chat_template") is not None:
                return value["chat_template"]
    return None


def _model_digests(recipe: Recipe, model_dir: Path | None) -> dict[str, str]:
    storage = {"model: quantization": recipe.model.quantization}
    if model_dir is None:
        return {"model: id": recipe.model.id, "model: revision": recipe.model.revision or "default", **storage}
    if not model_dir.is_dir():
        raise ConfigError(f"{model_dir}: no such model folder")
    config = {name: _optional_digest(model_dir / name) for name in ("config.json", "generation_config.json")}
    weights = sorted(path for path in model_dir.iterdir() if path.suffix in WEIGHT_SUFFIXES and path.is_file())
    index = sorted(path for path in model_dir.iterdir() if path.name.endswith(".index.json"))
    return {
        "model: config": _digest(config),
        "model: weights": _digest(
            [[path.name, _sparse_digest(path)] for path in weights]
            + [[path.name, _file_digest(path)] for path in index]
        ),
        "model: tokenizer": _digest([[name, _optional_digest(model_dir / name)] for name in TOKENIZER_FILES]),
        **storage,
    }


def _sampling_values(recipe: Recipe) -> dict[str, str]:
    grpo = recipe.grpo
    values = {
        "temperature": grpo.temperature,
        "top_p": grpo.top_p,
        "top_k": grpo.top_k,
        "min_p": grpo.min_p,
        "repetition_penalty": grpo.repetition_penalty,
        "max_completion_length": grpo.max_completion_length,
        "max_prompt_length": recipe.prompt.max_prompt_length,
        "overlong prompts": recipe.prompt.overlong,
    }
    return {f"sampling: {name}": str(value) for name, value in values.items()}


def _sparse_digest(path: Path) -> str:
    """SHA-256 over size, start and evenly spread blocks of a weight file; the start holds a safetensors header."""
    size = path.stat().st_size
    hasher = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        step = max(1, (size - BLOCK_BYTES) // (NUM_BLOCKS - 1)) if size > BLOCK_BYTES else size
        for number in range(NUM_BLOCKS if size > BLOCK_BYTES else 1):
            file.seek(number * step)
            hasher.update(file.read(BLOCK_BYTES))
    return hasher.hexdigest()


def _optional_digest(path: Path) -> str | None:
    return _file_digest(path) if path.is_file() else None


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
