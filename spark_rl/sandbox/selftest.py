"""Proof instead of belief: a program that tries what the sandbox forbids, run in it before it is trusted.

Out: the names of what succeeded; an empty list means that isolation is in force.
"""

from __future__ import annotations

import json

from spark_rl.sandbox.checks import run_program
from spark_rl.sandbox.jobs import ProgramJob
from spark_rl.sandbox.limits import Limits
from spark_rl.sandbox.warm import WarmWorker

PROGRAM = """
import ctypes, json, os, socket, sys

def attempt(name, action):
    try:
        action()
    except BaseException:
        return
    breaches.append(name)

def read_folder(path):
    if not os.listdir(path):
        raise OSError("empty")

def write_file(path):
    with open(path, "w") as file:
        file.write("x")

libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno())

breaches = []
attempt("fork", lambda: os.fork() or os._exit(0))
attempt("exec", lambda: os.execv(sys.executable, [sys.executable, "-c", "print('[\\"exec\\"]')"]))
attempt("network socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
attempt("unix socket", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
attempt("signal to another process", lambda: os.kill(os.getppid() or 1, 0))
attempt("signal to all", lambda: os.kill(-1, 0))
attempt("trace", lambda: call({"x86_64": 101, "aarch64": 117}[os.uname().machine], 16, os.getppid() or 1, 0, 0))
attempt("become root", lambda: os.setuid(0) or write_file("/root-was-here"))
attempt("user namespace", lambda: call({"x86_64": 272, "aarch64": 97}[os.uname().machine], 0x10000000))
attempt("read /etc", lambda: open("/etc/passwd").read())
attempt("read /proc", lambda: open("/proc/self/status").read())
attempt("list /proc", lambda: read_folder("/proc"))
attempt("list /home", lambda: read_folder("/home"))
attempt("list /root", lambda: read_folder("/root"))
attempt("list /sys", lambda: read_folder("/sys"))
attempt("write /", lambda: write_file("/written"))
attempt("write the library", lambda: write_file(os.path.dirname(os.__file__) + "/written"))
attempt("write /var/tmp", lambda: write_file("/var/tmp/written"))
attempt("write /dev/shm", lambda: write_file("/dev/shm/written"))
if set(os.environ) - {"HOME", "TMPDIR", "LANG", "PATH", "LD_LIBRARY_PATH", "LC_CTYPE", "PWD"}:
    breaches.append("host environment")
if os.listdir(os.environ["TMPDIR"]):
    breaches.append("scratch folder not empty")
print(json.dumps(breaches))
"""


def breaches(worker: WarmWorker, limits: Limits) -> list[str]:
    """What the self-test could do that it must not; one entry with the reason when it could not run at all."""
    outcome = run_program(worker, ProgramJob([PROGRAM]), limits)
    if not outcome.passed:
        return [f"the self-test did not run: {outcome.reason} {outcome.output[-200:]}".strip()]
    try:
        found = json.loads(outcome.output)
    except ValueError:
        return [f"the self-test printed {outcome.output[:100]!r}"]
    return [str(item) for item in found]
