"""Is there a `vllm serve` that this recipe can train with? Asked before anything is loaded, answered in words.

In: the address, the recipe. Out: a `ServerFacts`, or one ConfigError that says what is wrong with the server and how to start it
rightly. Reads four addresses over HTTP; the judgement is a pure function.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from spark_rl.errors import ConfigError, Problem
from spark_rl.recipe import Recipe
from spark_rl.rollout.commands import serve_command

OLDEST, NEWEST = (0, 20, 0), (0, 30, 0)
"""vLLM versions that the installed TRL names (its import_utils); a contract test compares."""

RETRY_SECONDS = 2.0
REQUEST_SECONDS = 10.0


@dataclass(frozen=True)
class Answer:
    """What one address said: a status, a JSON value where there was one, or why there was no answer."""

    status: int | None
    value: Any = None
    fault: str | None = None


@dataclass(frozen=True)
class ServerFacts:
    url: str
    version: str | None
    model: str | None
    max_model_len: int | None
    takes_weights: bool


Fetch = Callable[[str], Answer]


def fetch(url: str) -> Answer:
    """One GET. A refused connection and a time-out are told apart."""
    try:
        with urllib.request.urlopen(url, timeout=REQUEST_SECONDS) as response:
            body = response.read()
            return Answer(response.status, json.loads(body) if body.strip() else None)
    except urllib.error.HTTPError as error:
        return Answer(error.code)
    except TimeoutError:
        return Answer(None, fault=f"no answer in {REQUEST_SECONDS:g} s")
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            return Answer(None, fault=f"no answer in {REQUEST_SECONDS:g} s")
        if isinstance(error.reason, ConnectionRefusedError):
            return Answer(None, fault="the connection was refused: nothing listens there")
        return Answer(None, fault=str(error.reason))
    except (ValueError, OSError) as error:
        return Answer(None, fault=f"{type(error).__name__}: {error}")


def check_server(
    recipe: Recipe,
    fetch: Fetch = fetch,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> ServerFacts:
    """Wait for the recipe's server and judge it. Raises ConfigError with every fault at once."""
    url = (recipe.rollout.server_base_url or "").rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url!r} is not the address of a server", "for example http://192.168.1.7:8000")
    _wait_until_healthy(url, recipe, fetch, clock, sleep)
    models = fetch(f"{url}/v1/models")
    version = fetch(f"{url}/version")
    world = fetch(f"{url}/get_world_size")
    entry = ((models.value or {}).get("data") or [{}])[0] if isinstance(models.value, dict) else {}
    facts = ServerFacts(
        url,
        version.value.get("version") if isinstance(version.value, dict) else None,
        entry.get("root") or entry.get("id"),
        entry.get("max_model_len"),
        world.status == 200,
    )
    problems = judge_server(facts, recipe)
    if problems:
        raise ConfigError(problems, f"start it so: {serve_command(recipe)}")
    return facts


def _wait_until_healthy(
    url: str, recipe: Recipe, fetch: Fetch, clock: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    limit = recipe.rollout.server_timeout_seconds
    started = clock()
    while True:
        answer = fetch(f"{url}/health")
        if answer.status == 200:
            return
        if answer.status is not None and answer.status not in (502, 503):
            raise ConfigError(
                f"{url}: something answers there, but not vLLM: /health gives {answer.status}", "check host and port"
            )
        if clock() - started + RETRY_SECONDS > limit:
            said = answer.fault or f"/health gives {answer.status}: still loading"
            raise ConfigError(
                f"{url}: no server within {limit:g} s: {said}",
                f"start it so: {serve_command(recipe)}; rollout.server_timeout_seconds waits longer",
            )
        sleep(RETRY_SECONDS)


def judge_server(facts: ServerFacts, recipe: Recipe) -> list[Problem]:
    """What makes this server unfit for this recipe."""

    def problem(key: str, message: str, hint: str | None = None) -> Problem:
        return Problem(facts.url, key, message, hint)

    found = []
    wanted = recipe.model.id
    if facts.model is None:
        found.append(problem("model", "the server names no model"))
    elif facts.model.rstrip("/") != wanted.rstrip("/"):
        found.append(problem("model", f"it serves {facts.model}, the recipe trains {wanted}"))
    if facts.version is None:
        found.append(problem("version", "the server does not say its version"))
    elif not OLDEST <= _numbers(facts.version) <= NEWEST:
        known = f"{'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}"
        found.append(problem("version", f"vLLM {facts.version} is outside what the trainer's TRL knows ({known})"))
    if facts.max_model_len is not None and facts.max_model_len < recipe.model.max_seq_length:
        found.append(
            problem(
                "max_model_len",
                f"{facts.max_model_len} tokens are fewer than model.max_seq_length {recipe.model.max_seq_length}",
            )
        )
    if not facts.takes_weights:
        found.append(
            problem(
                "weights",
                "the server does not take weight updates: it would sample from the base model for ever",
                "it needs VLLM_SERVER_DEV_MODE=1 and --weight-transfer-config",
            )
        )
    return found


def _numbers(version: str) -> tuple[int, ...]:
    """(0, 30, 0) of "0.30.0+cpu"."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:3] if part.isdigit())
