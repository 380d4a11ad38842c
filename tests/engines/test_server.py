"""`run --server URL`: a real HTTP server that is right, wrong, silent or absent, and what is said of each."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from spark_rl.errors import ConfigError
from spark_rl.recipe import Recipe, resolve
from spark_rl.rollout.commands import launch_commands, serve_command
from spark_rl.rollout.server import Answer, check_server

GOOD = {
    "/health": (200, None),
    "/version": (200, {"version": "0.30.0"}),
    "/v1/models": (200, {"data": [{"id": "Qwen/Qwen2.5-3B-Instruct", "max_model_len": 4096}]}),
    "/get_world_size": (200, {"world_size": 1}),
}


@pytest.fixture
def serve() -> Iterator:
    """Start a server with these answers; returns its address."""
    running: list[HTTPServer] = []

    def start(**changes: tuple[int, object]) -> str:
        answers = {**GOOD, **{f"/{name}": answer for name, answer in changes.items()}}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, value = answers.get(self.path, (404, None))
                self.send_response(status)
                self.end_headers()
                if value is not None:
                    self.wfile.write(json.dumps(value).encode())

            def log_message(self, *args: object) -> None: ...

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def recipe(url: str, *sets: str) -> Recipe:
    return resolve(
        "3b-lora-24gb",
        sets=[
            "rollout.kind=vllm_server",
            f'rollout.server_base_url="{url}"',
            "rollout.server_timeout_seconds=1",
            *sets,
        ],
    )


def told(url: str, *sets: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_server(recipe(url, *sets))
    return caught.value


def test_a_fitting_server_is_accepted(serve) -> None:
    facts = check_server(recipe(serve()))
    assert (facts.version, facts.model, facts.takes_weights) == ("0.30.0", "Qwen/Qwen2.5-3B-Instruct", True)


def test_another_model_is_refused_by_both_names(serve) -> None:
    words = told(serve(**{"v1/models": (200, {"data": [{"id": "other/model"}]})})).message
    assert "other/model" in words and "Qwen/Qwen2.5-3B-Instruct" in words


def test_a_version_the_trainer_does_not_know_is_refused(serve) -> None:
    assert "0.99.0" in told(serve(version=(200, {"version": "0.99.0"}))).message


def test_a_server_that_takes_no_weights_is_refused(serve) -> None:
    error = told(serve(get_world_size=(404, None)))
    assert "weight updates" in error.message and "VLLM_SERVER_DEV_MODE=1" in (error.hint or "")


def test_a_server_with_too_short_a_context_is_refused(serve) -> None:
    assert "max_seq_length" in told(serve(), "model.max_seq_length=8192").message


def test_all_faults_are_told_at_once(serve) -> None:
    error = told(serve(version=(200, {"version": "0.1.0"}), get_world_size=(404, None)))
    assert len(error.problems) == 2


def test_another_program_on_the_port_is_told_from_a_missing_one(serve) -> None:
    assert "not vLLM" in told(serve(health=(404, None))).message


def test_nothing_listening_is_said_with_the_command_that_starts_it() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    error = told(url)
    assert "refused" in error.message and "vllm serve" in (error.hint or "")


def test_a_server_that_never_answers_is_a_time_out() -> None:
    silent = Answer(None, fault="no answer in 10 s")
    now = iter(range(0, 1000, 10))
    with pytest.raises(ConfigError) as caught:
        check_server(recipe("http://10.0.0.1:8000"), lambda url: silent, lambda: float(next(now)), lambda seconds: None)
    assert "within 1 s" in caught.value.message and "no answer" in caught.value.message


def test_a_server_that_is_still_loading_is_waited_for() -> None:
    answers = iter([Answer(503), Answer(503)])
    now = iter(float(second) for second in range(100))
    waited: list[float] = []

    def fetch(url: str) -> Answer:
        path = url.removeprefix("http://10.0.0.1:8000")
        return next(answers, Answer(*GOOD[path])) if path == "/health" else Answer(*GOOD[path])

    loaded = recipe("http://10.0.0.1:8000", "rollout.server_timeout_seconds=60")
    check_server(loaded, fetch, lambda: next(now), waited.append)
    assert len(waited) == 2


def test_an_address_that_is_none_is_refused() -> None:
    assert "not the address" in told("localhost").message


# commands


def test_the_server_is_started_as_trl_needs_it() -> None:
    command = serve_command(recipe("http://x:8000"))
    for part in ("VLLM_SERVER_DEV_MODE=1", "--weight-transfer-config", "processed_logprobs", "--max-logprobs -1"):
        assert part in command


def test_server_mode_has_a_command_for_each_machine() -> None:
    server, trainer = launch_commands(recipe("http://x"), "3b-lora-24gb", "t", server=True, hosts=("a", "b"))
    assert server.machine.startswith("b") and "vllm serve" in server.lines[0]
    assert trainer.machine.startswith("a") and trainer.lines == (
        "spark-rl run --profile 3b-lora-24gb --task t --server http://b:8000",
    )


def test_two_sparks_get_one_rank_each_and_never_tensor_parallel() -> None:
    spark = resolve("8b-full-spark")
    plans = launch_commands(spark, "8b-full-spark", "t", machines=2, parallel="fsdp", unified=True, hosts=("a", "b"))
    assert [f"--machine_rank {index}" in plan.lines[-1] for index, plan in enumerate(plans)] == [True, True]
    assert all("--use_fsdp" in plan.lines[-1] and "tensor" not in plan.lines[-1] for plan in plans)
    sharded = resolve("8b-full-spark", sets=["rollout.tensor_parallel_size=2"])
    with pytest.raises(ConfigError, match="never across two Sparks"):
        launch_commands(sharded, "8b-full-spark", "t", machines=2, unified=True)
