"""One sample from job to outcome, on warm workers: tests against a candidate, or one program on one input.

Nothing a candidate does raises here; it becomes an outcome. Three processes see a sample: the candidate (its program),
the judge (tests), this one (both as text, run by neither).
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spark_rl.sandbox.inside import wire
from spark_rl.sandbox.jobs import Outcome, ProgramJob, TestJob
from spark_rl.sandbox.limits import Limits
from spark_rl.sandbox.warm import Report, WarmWorker, WorkerDied

ROLE_CANDIDATE = b"c"
ROLE_PROGRAM = b"p"
ROLE_JUDGE = b"j"
ROLE_BARE_INTERPRETER = b"b"
SEND_SECONDS = 5.0
"""A worker reads its job at once; one that does not is broken."""
SIGNAL_MEANING = {
    signal.SIGXCPU: "used up its processor time",
    signal.SIGXFSZ: "wrote too large a file",
    signal.SIGSEGV: "crashed (segmentation fault)",
    signal.SIGABRT: "aborted",
    signal.SIGSYS: "made a forbidden system call",
}


@dataclass
class Output:
    """The candidate's output so far, up to the limit."""

    limit: int
    text: bytes = b""
    overflowed: bool = False

    def take(self, descriptor: int) -> bool:
        """Read what is there; False at its end."""
        chunk = os.read(descriptor, 1 << 16)
        room = self.limit - len(self.text)
        self.text += chunk[:room]
        self.overflowed = self.overflowed or len(chunk) > room
        return bool(chunk)

    def take_rest(self, descriptor: int) -> None:
        """What a dead process left in the pipe."""
        os.set_blocking(descriptor, False)
        with contextlib.suppress(BlockingIOError):
            while not self.overflowed and self.take(descriptor):
                pass

    def decoded(self) -> str:
        return self.text.decode("utf-8", "replace")


def run_tests(candidate: WarmWorker, judge: WarmWorker, job: TestJob, limits: Limits) -> Outcome:
    """The tests' verdict on the candidate."""
    if refused := refused_unread(job.sources, limits):
        return refused
    output = Output(limits.output_bytes)
    started = time.monotonic()
    try:
        with replaced_on_error(candidate, judge), contextlib.ExitStack() as held:
            to_candidate, candidates_end = socket_pair(held)
            to_judge, judges_end = socket_pair(held)
            printed, printing = pipe(held)
            nowhere = held.enter_context(io.FileIO(os.devnull, "wb"))
            nonce = secrets.token_hex(16)

            candidate.begin(ROLE_CANDIDATE, [printing.fileno(), candidates_end.fileno()])
            wire.send(to_candidate.fileno(), {"sources": list(job.sources), "role": "candidate"})
            judge.begin(ROLE_JUDGE, [nowhere.fileno(), judges_end.fileno(), to_candidate.fileno()])
            wire.send(to_judge.fileno(), judges_job(job, nonce))
            for ours in (candidates_end, judges_end, to_candidate, printing):
                ours.close()
            started = time.monotonic()  # a worker that had to be started anew has cost the sample nothing

            ending = wait_for(to_judge.fileno(), printed.fileno(), output, started + limits.time_seconds)
            verdict = read_verdict(to_judge.fileno(), nonce) if ending == "ready" else None
            candidate.end()
            judge.end()
            judge_report, report = judge.report(), candidate.report()
            output.take_rest(printed.fileno())
    except wire.TooLarge as error:
        return Outcome(False, str(error), seconds=time.monotonic() - started)
    except (WorkerDied, wire.WireError, OSError) as error:
        return Outcome(None, f"the sandbox failed: {error}", sandbox_failed=True, seconds=time.monotonic() - started)
    seconds = time.monotonic() - started
    reached = limit_reached(ending, output, report, limits)
    if reached is not None:
        return Outcome(
            False,
            reached,
            output=output.decoded(),
            seconds=seconds,
            peak_bytes=report.peak_bytes,
            timed_out=ending == "deadline",
        )
    if verdict is None:
        reason = f"the tests ended without a verdict ({ended_how(judge_report.status)})"
        return Outcome(False, reason, output=output.decoded(), seconds=seconds, peak_bytes=report.peak_bytes)
    return Outcome(
        passed=verdict["passed"],
        reason=explained(verdict["reason"], report),
        passes=verdict["passes"],
        total=verdict["total"],
        output=output.decoded(),
        seconds=seconds,
        peak_bytes=report.peak_bytes,
        sandbox_failed=verdict.get("judge_failed") is True,
    )


def run_program(worker: WarmWorker, job: ProgramJob, limits: Limits) -> Outcome:
    """The program's output and exit code; `passed` says only whether it ended by itself with 0."""
    if refused := refused_unread([*job.sources, job.stdin], limits):
        return refused
    output = Output(limits.output_bytes)
    started = time.monotonic()
    try:
        with replaced_on_error(worker), contextlib.ExitStack() as held:
            ours, theirs = socket_pair(held)
            printed, printing = pipe(held)
            worker.begin(ROLE_PROGRAM, [printing.fileno(), theirs.fileno()])
            printing.close()
            theirs.close()
            wire.send(ours.fileno(), {"sources": list(job.sources), "stdin": job.stdin})
            started = time.monotonic()
            deadline = started + limits.time_seconds
            ending = wait_for(-1, printed.fileno(), output, deadline)
            if ending == "ready" and not worker.ends_by_itself(deadline - time.monotonic()):
                ending = "deadline"  # it closed its output and went on
            worker.end()
            report = worker.report()
            output.take_rest(printed.fileno())
    except wire.TooLarge as error:
        return Outcome(False, str(error), seconds=time.monotonic() - started)
    except (WorkerDied, wire.WireError, OSError) as error:
        return Outcome(None, f"the sandbox failed: {error}", sandbox_failed=True, seconds=time.monotonic() - started)
    reached = limit_reached(ending, output, report, limits)
    return Outcome(
        passed=reached is None and report.status == 0,
        reason=reached or ended_how(report.status),
        output=output.decoded(),
        seconds=time.monotonic() - started,
        status=report.status,
        peak_bytes=report.peak_bytes,
        timed_out=ending == "deadline",
    )


def run_bare_interpreter(worker: WarmWorker) -> Report:
    """Fork and exec Python in the sandbox, which does nothing and ends: the benchmark's yardstick."""
    with io.FileIO(os.devnull, "wb") as nowhere:
        worker.begin(ROLE_BARE_INTERPRETER, [nowhere.fileno()])
        return worker.report()


@contextlib.contextmanager
def replaced_on_error(*workers: WarmWorker) -> Iterator[None]:
    """Workers that were interrupted in a sample are ended; they start afresh with the next one."""
    try:
        yield
    except BaseException:
        for worker in workers:
            worker.stop()
        raise


def refused_unread(texts: Sequence[str], limits: Limits) -> Outcome | None:
    """Sources too long to be worth compiling."""
    longest = max((len(text) for text in texts), default=0)
    if longest <= limits.source_bytes:
        return None
    return Outcome(False, f"the program is {longest} characters long, more than {limits.source_bytes}")


def judges_job(job: TestJob, nonce: str) -> dict[str, Any]:
    return {
        "tests": job.tests,
        "asserts": None if job.asserts is None else list(job.asserts),
        "entry_point": job.entry_point,
        "prompt": job.prompt,
        "setup": job.setup,
        "arguments_change": job.arguments_change,
        "nonce": nonce,
    }


def wait_for(awaited: int, printed: int, output: Output, deadline: float) -> str:
    """Collect output until `awaited` is readable (or, with -1, the output ends): "ready", "deadline" or "output"."""
    events = select.poll()
    if awaited >= 0:
        events.register(awaited, select.POLLIN)
    events.register(printed, select.POLLIN)
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return "deadline"
        for descriptor, _ in events.poll(remaining * 1000):
            if descriptor == awaited:
                return "ready"
            if not output.take(printed):
                if awaited < 0:
                    return "ready"
                events.unregister(printed)
        if output.overflowed:
            return "output"


def read_verdict(descriptor: int, nonce: str) -> dict[str, Any] | None:
    """The judge's verdict if it is whole and bears this run's nonce."""
    try:
        verdict = wire.receive(descriptor)
    except wire.WireError:
        return None
    if not isinstance(verdict, dict) or verdict.get("nonce") != nonce:
        return None
    return verdict


def limit_reached(ending: str, output: Output, report: Report, limits: Limits) -> str | None:
    """Which limit ended the sample, in words."""
    if ending == "deadline":
        return f"still running after {limits.time_seconds:g} s"
    if output.overflowed:
        return f"printed more than {limits.output_bytes} bytes"
    if report.overfull:
        return "filled its scratch folder"
    return None


def explained(reason: str, report: Report) -> str:
    """A candidate that ended without an answer: how."""
    reason = visible(str(reason)[:2000])
    ended = reason.startswith("the candidate ended") and report.status != -signal.SIGKILL  # that kill is ours
    return f"{reason}; it {ended_how(report.status)}" if ended else reason


def visible(text: str) -> str:
    """Text of a candidate without what could steer a terminal or break an encoding."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def ended_how(status: int) -> str:
    if status >= 0:
        return f"exited with code {status}"
    try:
        number = signal.Signals(-status)
    except ValueError:
        return f"was killed by signal {-status}"
    return SIGNAL_MEANING.get(number, f"was killed by {number.name}")


def socket_pair(held: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    """A connected pair that gives up instead of waiting for ever, and keeps blocking calls blocking."""
    ours, theirs = socket.socketpair()
    held.enter_context(ours)
    held.enter_context(theirs)
    patience = struct.pack("ll", int(SEND_SECONDS), 0)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
    return ours, theirs


def pipe(held: contextlib.ExitStack) -> tuple[io.FileIO, io.FileIO]:
    """A pipe as objects: closing one twice is harmless, where closing a number twice may close another thread's file."""
    reading, writing = os.pipe()
    return held.enter_context(io.FileIO(reading, "rb")), held.enter_context(io.FileIO(writing, "wb"))
