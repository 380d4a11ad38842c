"""The light parent of a run: starts the worker, reads the sensors beside it, and records how it ended.

`python -m spark_rl.supervisor RUN --stages probe,inspect,train`. It lives in a session of its own, so that closing a
viewer or a terminal leaves the run going. One supervisor a run: a lock in the run directory sees to that.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import psutil

from spark_rl import control
from spark_rl.errors import ExitCode, RunDirError, SparkError
from spark_rl.gate.subject import read_recipe
from spark_rl.gpu_choice import gpu_environment, pinned_uuid
from spark_rl.guard import effects
from spark_rl.guard.action import Action
from spark_rl.guard.run_watch import RunWatch, WorkerControl
from spark_rl.modelcard import find_card
from spark_rl.recipe import Recipe
from spark_rl.rundir import JsonlWriter, RunDir, read_json, read_jsonl, write_json
from spark_rl.runstate import describe_process, is_alive, tail_of
from spark_rl.telemetry import Sampler
from spark_rl.telemetry.procfs import count_oom_kills
from spark_rl.telemetry.rollout import RolloutBandwidth
from spark_rl.telemetry.sampler import NoGpu
from spark_rl.units import GIB

WAIT_SECONDS = 0.1
"""How often the worker is looked at: a poll of one process, far below a per mille of a core."""

CONCLUDE_SECONDS = 120.0
"""For diagnosis and report, which take about two."""

WORKER_ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Threads that wait must not spin: with another busy process on 2 cores a small training step took 3.7 s spinning
    # and 0.7 s sleeping.
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""What the user's own environment may override."""


def start(run: RunDir, stages: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a supervisor in the background. Raises RunDirError when the run has one already."""
    with _lock(run):
        pass
    log = (run.path / "supervisor.log").open("ab")
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "spark_rl.supervisor", str(run.path), "--stages", ",".join(stages)),
            *("--since", str(time.time())),
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


class _lock:  # noqa: N801  used as a with-block
    """Held by the supervisor as long as it lives; the kernel drops it when it is killed."""

    def __init__(self, run: RunDir) -> None:
        self._run, self._path = run, run.path / "supervisor.lock"

    def __enter__(self) -> None:
        try:
            self._file = self._path.open("w")
        except OSError as error:
            raise RunDirError(f"{self._run.path}: cannot be written: {error.strerror}", "is it read-only?") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise RunDirError(f"{self._path.parent}: this run is going on already", "spark-rl watch shows it") from None
        if is_alive((read_json(self._run.processes) or {}).get("worker")):
            self._file.close()
            raise RunDirError(
                f"{self._path.parent}: a worker whose supervisor was killed is still saving its checkpoint",
                "try again in a moment",
            )

    def __exit__(self, *_: object) -> None:
        self._file.close()


def supervise(run: RunDir, stages: Sequence[str], since: float | None = None) -> ExitCode:
    """Run the worker to its end. Returns the run's exit code, which the `run_ended` event carries too.

    `since`: UTC seconds when this process was asked for; a stop asked for after that is meant for it.
    """
    since = time.time() if since is None else since
    recipe = read_recipe(run)
    with _lock(run):
        events, telemetry = JsonlWriter(run.events), JsonlWriter(run.telemetry)
        events.append({"event": "supervisor_started", "stages": list(stages), "pid": os.getpid()})
        host = read_json(run.host) or {}
        worker = _spawn(run, stages, worker_environment(os.environ, host))
        write_json(run.processes, {"supervisor": describe_process(os.getpid()), "worker": _describe(worker.pid)})
        notes = [effects.lock_memory(), effects.offer_worker(worker.pid)]
        events.append({"event": "supervisor_prepared", "message": "; ".join(notes)})
        sampler = Sampler(
            gpu=NoGpu("not_used") if host.get("kind") == "cpu" else None,
            disk=run.path,
            worker_pid=worker.pid,
            budget_bytes=_budget_bytes(recipe),
            gpu_uuid=_run_gpu(host),
        )
        watch = RunWatch(
            sampler,
            _worker_control(run, worker.pid, sampler, since),
            events,
            telemetry,
            settings=recipe.guard.model_dump(exclude={"worker_budget_gib"}),
            planned_peak_bytes=_planned_peak_bytes(run),
            unified=host.get("kind") == "unified",
            rollouts=_rollout_bandwidth(run, recipe, host),
            row_seconds=recipe.guard.sample_seconds,
        )
        stop = StopRequest(run, since)
        num_oom_kills = count_oom_kills()
        next_pass = next_look = time.monotonic()
        while worker.poll() is None:
            now = time.monotonic()
            if now >= next_look:
                next_look = now + WAIT_SECONDS
                if stop.is_due():
                    effects.terminate_group(worker.pid)
            if now >= next_pass:
                next_pass = now + watch.step()
            time.sleep(max(0.002, min(next_pass, next_look) - time.monotonic()))
        watch.finish()
        sampler.close()
        kernel_killed = None if num_oom_kills is None else count_oom_kills() != num_oom_kills
        code, ended = judge_end(run, worker.returncode, watch.stopped_because, kernel_killed)
        if stop.carried_out:
            code, ended = ExitCode.OK, {"cause": "stopped on request before training", "hint": None, "stopped": True}
        events.append({"event": "worker_ended", "returncode": worker.returncode, "cause": ended["cause"]})
        events.append({"event": "run_ended", "exit_code": int(code), **ended})
        # After the end is known: the report says how the run ended.
        if run.metrics.exists() and not _conclude(run):
            events.append({"event": "data_noted", "message": "the report could not be written; see supervisor.log"})
    return code


def _conclude(run: RunDir) -> bool:
    """Write diagnosis and report beside the run. A run stands without them, so failing is only noted."""
    command = [sys.executable, "-m", "spark_rl.conclude", str(run.path)]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, timeout=CONCLUDE_SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


class StopRequest:
    """A stop that comes while the worker is not training: it reads requests at steps only, so the supervisor ends it."""

    def __init__(self, run: RunDir, since: float) -> None:
        self._run = run
        self._since = since
        self._seen: str | None = None
        self.carried_out = False

    def is_due(self) -> bool:
        """True once, when the worker is to be ended now."""
        asked = control.read_request(self._run, newer_than=self._since)
        if asked is None or asked.request != "stop" or self.carried_out:
            return False
        if asked.id != self._seen:
            # The phase is read once a request: a training worker stops by itself, after a checkpoint.
            self._seen = asked.id
            self.carried_out = phase_of(self._run, self._since) != "train"
            return self.carried_out
        return False


def worker_environment(environ: Mapping[str, str], host: Mapping[str, Any]) -> dict[str, str]:
    """The worker's variables on the machine that host.json describes: where it has several GPUs, the run's own is the only
    one that the worker sees, whatever order CUDA counts in and however many the shell left visible."""
    return {**WORKER_ENVIRONMENT, **environ, **gpu_environment(environ, _run_gpu(host))}


def _run_gpu(host: Mapping[str, Any]) -> str | None:
    return pinned_uuid(host.get("gpu_uuid"), host.get("gpu_count"))


def _spawn(run: RunDir, stages: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """The worker leads a process group of its own, so that it can be killed with all it started."""
    with run.stdout_log.open("ab") as stdout, run.stderr_log.open("ab") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "spark_rl.worker", str(run.path), "--stages", ",".join(stages)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            process_group=0,
            env=environment,
        )


def _describe(pid: int) -> dict[str, Any] | None:
    try:
        return describe_process(pid)
    except psutil.NoSuchProcess:
        return None


def _worker_control(run: RunDir, pid: int, sampler: Sampler, since: float) -> WorkerControl:
    """How the guard reaches the worker."""

    def ask(request: str) -> None:
        control.send(run, cast(control.Request, request), asker="guard")

    return WorkerControl(
        ask=ask,
        is_training=lambda: phase_of(run, since) == "train",
        terminate=lambda: effects.terminate_group(pid),
        kill=lambda: effects.kill_worker(pid, sampler.members),
    )


def phase_of(run: RunDir, since: float) -> str | None:
    """The phase that the worker began last; None while one started since then has begun none."""
    rows = read_jsonl(run.worker_events).rows
    phases = [row["phase"] for row in rows if row.get("event") == "phase_started" and row["t"] >= since]
    return str(phases[-1]) if phases else None


def _planned_peak_bytes(run: RunDir) -> int | None:
    """The upper end of fit's peak where host and device are one pool; None without a prediction."""
    fit = read_json(run.fit) or {}
    peak = fit.get("peak_high_bytes")
    return int(peak) if fit.get("one_pool") and isinstance(peak, int | float) else None


BYTES_PER_WEIGHT = {"none": 2.0, "bnb-4bit": 0.52, "bnb-8bit": 1.0, "fp8": 1.0}
"""Of the sampler's copy; bf16 where not quantised, NF4 with its block scales."""


def _rollout_bandwidth(run: RunDir, recipe: Recipe, host: Mapping[str, Any]) -> RolloutBandwidth | None:
    """Bandwidth by what a decode step of this model must read; None for a model whose shape is not known."""
    try:
        card = find_card(recipe.model.id, recipe.model.revision)
    except SparkError:
        return None
    width = (
        4.0
        if recipe.model.dtype == "float32" and recipe.model.quantization == "none"
        else BYTES_PER_WEIGHT[recipe.model.quantization]
    )
    peak = host.get("bandwidth_bytes_per_second") if host.get("kind") in ("unified", "discrete") else None
    return RolloutBandwidth(run.metrics, card.decode_weight_count * width, card.cache_bytes_per_token(2), peak)


def _budget_bytes(recipe: Recipe) -> int | None:
    budget_gib = recipe.guard.worker_budget_gib
    return int(budget_gib * GIB) if budget_gib else None


def judge_end(
    run: RunDir, returncode: int, stopped_because: Action | None = None, kernel_killed: bool | None = None
) -> tuple[ExitCode, dict[str, Any]]:
    """Exit code and cause from the worker's last words, or from how it died when it had none; the guard's own decision
    to end it stands above both. `kernel_killed`: whether the kernel killed
    something for want of memory meanwhile; None where it does not count."""
    if stopped_because is not None:
        hint = (
            "spark-rl resume goes on from the last checkpoint, with less: spark-rl fit shows the cheapest changes"
            if stopped_because.cause == "memory"
            else "let the machine cool, give it air or cap its clock (spark-rl doctor says how), then spark-rl resume"
        )
        how = "stopped" if stopped_because.kind == "stop" and returncode >= 0 else "killed"
        cause = f"{how} by the guard: {stopped_because.reason}"
        return ExitCode.STOPPED_BY_GUARD, {"cause": cause, "hint": hint, "stopped": False}
    words = [row for row in read_jsonl(run.worker_events).rows if row.get("event") == "worker_finished"]
    if returncode >= 0 and words:
        last = words[-1]
        return ExitCode(last["exit_code"]), {key: last.get(key) for key in ("cause", "hint", "stopped")}
    if returncode < 0:
        name = signal.Signals(-returncode).name
        cause = f"the worker was killed by {name}"
        if name == "SIGKILL":
            cause += {
                True: ": by the kernel, for want of memory (see telemetry.jsonl; dmesg tells more)",
                False: ": by a person or a program; the kernel has killed nothing for want of memory",
                None: ": by a person, or by the kernel for want of memory (see telemetry.jsonl)",
            }[kernel_killed]
        return ExitCode.TRAINING_FAILED, {"cause": cause, "hint": "spark-rl resume goes on from the last checkpoint"}
    last_lines = [line for line in tail_of(run.stderr_log) if line.strip()]
    cause = f"the worker ended with code {returncode} without a word"
    cause += f": {last_lines[-1].strip()}" if last_lines else ""
    return ExitCode.TRAINING_FAILED, {"cause": cause, "hint": "see stderr.log of the run"}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m spark_rl.supervisor")
    parser.add_argument("run", type=Path)
    parser.add_argument("--stages", required=True)
    parser.add_argument("--since", type=float, help="UTC seconds when the run was asked for (default: now)")
    args = parser.parse_args(argv)
    try:
        return int(supervise(RunDir(args.run.resolve()), args.stages.split(","), args.since))
    except SparkError as error:
        sys.stderr.write(f"error: {error.message}\n")  # supervisor.log
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main())
