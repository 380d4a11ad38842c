"""The hostile battery: programs that try to cheat, escape, hang or stay, run as the sandbox would run any sample.

In:  a folder of programs, each opening with one comment that says what it tries.
Out: one finding per program, and counts. Each program is judged twice: as a module whose `solve` is tested against
values that cannot be guessed, and as a whole program that should print one. Between programs an honest probe runs on
the same workers and looks for anything left behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from spark_rl.sandbox.checks import run_program, run_tests
from spark_rl.sandbox.jobs import Outcome, ProgramJob, TestJob
from spark_rl.sandbox.limits import Limits
from spark_rl.sandbox.methods import FIRST_SANDBOX_USER, NUM_SANDBOX_USERS, MethodName
from spark_rl.sandbox.pool import Pair, Sandbox
from spark_rl.sandbox.warm import descendants

FileState = tuple[int, int, int]
ESCAPE_MARK = "ESCAPED"
"""What a program prints when it managed what it tried."""
GRACE_SECONDS = 20.0
"""Beyond its time limit, a check may take this long to be cleaned up before it counts as hung."""
BATTERY_LIMITS = Limits(time_seconds=2.0, cpu_seconds=2)

_DIRECTIVE = re.compile(r"^# battery: (pad|repeat) (.+)$", re.MULTILINE)
# Paths in a program's text, but not those whose state changes by being looked at.
_ABSOLUTE_PATH = re.compile(r"(?<![\w.\-/])(/(?!proc\b|sys\b|dev/(?!shm))[\w.\-/]{2,100})")

# A module that lacks `solve` is tested through whatever it does define.
_ANY_FUNCTION = """
if "solve" not in globals():
    solve = next((item for item in reversed(list(globals().values())) if callable(item)), None)
"""

PROBE = """
import builtins, os, sys, tempfile
left = [name for folder in {tempfile.gettempdir(), os.getcwd()} for name in os.listdir(folder)]
left += [name for name in ("left_by_an_earlier_sample",) if hasattr(builtins, name)]
left += [name for name in ("left",) if name in sys.modules]
left += [name for name in ("LEFT", "LD_PRELOAD") if name in os.environ]

def solve(n):
    return left
"""


@dataclass(frozen=True)
class Finding:
    """What one program achieved."""

    name: str
    tries: str
    rewarded: bool = False
    escaped: tuple[str, ...] = ()
    hung: bool = False
    orphans: int = 0
    leftovers: tuple[str, ...] = ()
    seconds: float = 0.0
    reasons: tuple[str, ...] = ()

    @property
    def harmless(self) -> bool:
        return not (self.rewarded or self.escaped or self.hung or self.orphans or self.leftovers)


@dataclass(frozen=True)
class Program:
    """One hostile program as read from its file."""

    name: str
    tries: str
    source: str


@dataclass(frozen=True)
class Secrets:
    """Values that no program can know; whoever shows one has read what it must not."""

    key: str = field(default_factory=lambda: secrets.token_hex(16))

    def answer(self, question: int) -> str:
        return hashlib.sha256(f"{self.key} {question}".encode()).hexdigest()

    def tests(self) -> str:
        """Tests in HumanEval's form whose expected values are all different."""
        expected = {question: self.answer(question) for question in range(3)}
        return (
            f"EXPECTED_VALUES = {expected!r}\n\n\ndef check(candidate):\n"
            "    for question, expected in EXPECTED_VALUES.items():\n"
            "        result = candidate(question)\n"
            "        assert result == expected\n"
        )

    def honest(self) -> str:
        """A program that knows the answers: it must be rewarded, or the battery proves nothing."""
        return (
            f"import hashlib\n\ndef solve(n):\n    return hashlib.sha256(f'{self.key} {{n}}'.encode()).hexdigest()\n"
            "\nprint(solve(0))\n"
        )

    def seen_in(self, text: str) -> bool:
        return self.key in text or any(self.answer(question) in text for question in range(3))


def read_programs(folder: Path) -> list[Program]:
    """Every *.py file of a folder, by name; every file, when none is called so."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return [read_program(path) for path in [path for path in files if path.suffix == ".py"] or files]


def read_program(path: Path) -> Program:
    """A program; `# battery: pad N` and `# battery: repeat TEXT N` stand for what is too large to ship."""
    source = path.read_bytes().decode("utf-8", "surrogateescape")
    first = re.split(r"[\r\n]", source, maxsplit=1)[0]
    directive = _DIRECTIVE.search(source)
    if directive is not None:
        source += _expanded(directive[1], directive[2])
    return Program(path.stem, first.lstrip("# ").strip(), source)


def _expanded(kind: str, arguments: str) -> str:
    if kind == "pad":
        return ("#" * 79 + "\n") * (int(arguments) // 80)
    text, _, times = arguments.rpartition(" ")
    return "x = " + text * int(times) + "1" + (")" * int(times) if text == "(" else "") + "\n"


def run_battery(
    programs: Sequence[Program],
    limits: Limits = BATTERY_LIMITS,
    method: MethodName | None = None,
    report: Callable[[Finding], None] = lambda _: None,
) -> list[Finding]:
    """Every program on workers of its own kind. RuntimeError when the honest program is not rewarded."""
    known = Secrets()
    shared_before = shared_memory_objects()
    with Sandbox(limits, method=method) as sandbox:
        prove_honest_is_rewarded(sandbox, known)

        def one(program: Program) -> Finding:
            with sandbox.borrowed() as pair:
                finding = try_program(program, pair, limits, known)
            report(finding)
            return finding

        with ThreadPoolExecutor(sandbox.num_pairs) as threads:
            findings = list(threads.map(one, programs))
        folder = sandbox.isolation.folder
        pids = sandbox.worker_pids
    last = findings[-1:] or []
    after = [f"process {pid}" for pid in pids if is_alive(pid)]
    after += [str(folder)] if folder is not None and folder.exists() else []
    after += sorted(shared_memory_objects() - shared_before)
    if after and last:
        findings[-1] = replace(last[0], leftovers=(*last[0].leftovers, *after))
    return findings


def prove_honest_is_rewarded(sandbox: Sandbox, known: Secrets) -> None:
    tested = sandbox.check(TestJob([known.honest()], tests=known.tests(), entry_point="solve"))
    ran = sandbox.run(ProgramJob([known.honest()]))
    if not tested.passed or ran.output.strip() != known.answer(0):
        raise RuntimeError(f"the honest program is not rewarded: {tested.reason}; {ran.reason}")


def try_program(program: Program, pair: Pair, limits: Limits, known: Secrets) -> Finding:
    """Both ways of judging one program, then the probe."""
    watched = watch_host(program)
    started = time.monotonic()
    sources = [program.source + _ANY_FUNCTION, program.source]
    tested = run_tests(pair.candidate, pair.judge, TestJob(sources, tests=known.tests(), entry_point="solve"), limits)
    between = time.monotonic()
    ran = run_program(pair.candidate, ProgramJob([program.source], stdin="0\n"), limits)
    ended = time.monotonic()
    slowest = max(between - started, ended - between)
    return Finding(
        name=program.name,
        tries=program.tries,
        rewarded=bool(tested.passed) or (bool(ran.passed) and known.answer(0) in ran.output),
        escaped=(*said_escapes((tested, ran), known), *changes_on_host(watched)),
        hung=slowest > limits.time_seconds + GRACE_SECONDS or tested.sandbox_failed or ran.sandbox_failed,
        orphans=num_orphans(pair),
        leftovers=probe(pair, limits),
        seconds=ended - started,
        reasons=(tested.reason, ran.reason),
    )


def said_escapes(outcomes: Iterable[Outcome], known: Secrets) -> list[str]:
    """Escapes that show in what a program printed or in what its failure said."""
    found = []
    for outcome in outcomes:
        text = outcome.output
        found += [line[:200] for line in text.splitlines() if ESCAPE_MARK in line]
        if known.seen_in(text):
            found.append("printed a secret of the tests")
    return found


def probe(pair: Pair, limits: Limits) -> tuple[str, ...]:
    """What an honest program run next on the same workers finds of the one before."""
    job = TestJob(
        [PROBE],
        tests="def check(candidate):\n    left = candidate(0)\n    assert left == [], left",
        entry_point="solve",
    )
    outcome = run_tests(pair.candidate, pair.judge, job, limits)
    return () if outcome.passed else (outcome.reason,)


def watch_host(program: Program) -> Mapping[str, FileState | None]:
    """The state on the host of every absolute path that the program's text names."""
    paths = set(_ABSOLUTE_PATH.findall(program.source[:1_000_000]))
    return {path: state_of(path) for path in sorted(paths)}


def changes_on_host(before: Mapping[str, FileState | None]) -> list[str]:
    """Named files that appeared, vanished or changed. Folders count only as there or not: others use them too."""
    return [f"changed {path} on the host" for path, state in before.items() if state_of(path) != state]


def num_orphans(pair: Pair) -> int:
    """Processes of the pair's workers beyond the workers themselves, after a sample's end."""
    count = 0
    for worker in (pair.candidate, pair.judge):
        if worker.pid is None:
            continue
        family = {worker.pid, *descendants(worker.pid)}
        strangers = set(members_of_session(worker.pid)) - family
        count += len(strangers) + max(0, len(family) - 1 - worker.num_own_descendants)
    return count


def members_of_session(leader: int) -> list[int]:
    """Live processes whose session was begun by `leader`; a worker begins one, and the filter forbids to leave it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(session) == leader and state != "Z":
            found.append(int(folder.name))
    return found


def state_of(path: str) -> FileState | None:
    """(size, modification time in ns, mode) of a file, zeros for a folder, None where nothing is."""
    try:
        facts = os.lstat(path)
    except OSError:
        return None
    if os.path.isdir(path):  # noqa: PTH112
        return (0, 0, 0)
    return (facts.st_size, facts.st_mtime_ns, facts.st_mode)


def shared_memory_objects() -> set[str]:
    """System V and POSIX shared objects of the users that samples run as; other users' come and go as they like."""
    users = {*range(FIRST_SANDBOX_USER, FIRST_SANDBOX_USER + NUM_SANDBOX_USERS)}
    users |= {os.geteuid()} if os.geteuid() != 0 else set()
    found = set()
    for kind in ("shm", "sem", "msg"):
        with contextlib.suppress(OSError):
            names, *rows = Path("/proc/sysvipc", kind).read_text().splitlines()
            owner = names.split().index("uid")
            found |= {f"{kind} {row.split()[1]}" for row in rows if int(row.split()[owner]) in users}
    with contextlib.suppress(OSError):
        found |= {str(one) for one in Path("/dev/shm").iterdir() if one.stat().st_uid in users}
    return found


def is_alive(pid: int) -> bool:
    return Path("/proc", str(pid)).exists()


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """The battery's JSON object."""
    return {
        "programs": len(findings),
        "rewarded": sum(finding.rewarded for finding in findings),
        "escaped": sum(bool(finding.escaped) for finding in findings),
        "hung": sum(finding.hung for finding in findings),
        "orphans": sum(finding.orphans for finding in findings),
        "leftovers": sum(bool(finding.leftovers) for finding in findings),
    }
