"""Pipes that close, terminals that know little, disks that are full or read-only: a sentence or nothing, no traceback."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spark_rl.cli import main
from spark_rl.cli.follow import tell_silent_end
from spark_rl.errors import ExitCode, RunDirError
from spark_rl.rundir import JsonlWriter, RunDir, create_run, write_json, write_jsonl, write_text_atomic

COMMANDS = [
    "profiles ls",
    "recipe show --profile cpu-tiny",
    "fit --profile 1.5b-lora-12gb",
    "ls",
    "watch",
    "doctor --report -",
    "report",
]
PROGRAM = [sys.executable, "-m", "spark_rl"]
BARE_TERMINAL = {"LC_ALL": "C", "TERM": "dumb", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A C locale as other programs have it: Python would otherwise take it for UTF-8."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run in it, whose name and cause are not ASCII."""
    folder = tmp_path_factory.mktemp("here")
    run = create_run(folder / "runs", "x")
    run = RunDir(run.path.rename(run.path.with_name(run.name + "-größe")))
    write_json(run.recipe, {"grpo": {"max_steps": 40}})
    events = JsonlWriter(run.events)
    events.append({"event": "supervisor_started", "pid": 1})
    events.append({"event": "run_ended", "exit_code": 7, "cause": "Größe → 0"})
    metrics = JsonlWriter(run.metrics)
    for step in range(1, 4):
        metrics.append({"step": step, "reward": 0.5})
    return folder


def ran(arguments: str, folder: Path, stdout: object = subprocess.PIPE, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*PROGRAM, *arguments.split()],
        cwd=folder,
        stdout=stdout,  # type: ignore[call-overload]
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
        check=False,
    )
    out, err = (done.stdout or b"").decode("ascii", "replace"), done.stderr.decode("ascii", "replace")
    assert "Traceback" not in err and "Exception ignored" not in err, err
    return done.returncode, out, err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_gone_ends_a_command_without_a_word(folder: Path, command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        code, _, err = ran(command, folder, writing)
    finally:
        os.close(writing)
    assert code == 141 and "error" not in err


@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_cannot_be_written_is_told_with_its_cause(folder: Path, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        code, _, err = ran(command, folder, full)
    assert code == ExitCode.RUN_DIR
    assert "error: standard output: No space left on device" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_bare_terminal_gets_plain_ascii(folder: Path, command: str) -> None:
    code, out, _ = ran(command, folder, **BARE_TERMINAL)
    assert code == 0
    assert out.isascii() and "\x1b" not in out and "�" not in out


def test_json_stays_json_where_the_encoding_lacks_a_character(folder: Path) -> None:
    _, out, _ = ran("ls --json", folder, **BARE_TERMINAL)
    assert json.loads(out)["cause"] == "Größe → 0"
    _, out, _ = ran("watch", folder, **BARE_TERMINAL)
    assert "cause: Gr\\xf6\\xdfe \\u2192 0" in out


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_as_good_as_none(folder: Path, closed: str) -> None:
    line = f"exec {' '.join(PROGRAM)} fit --profile 1.5b-lora-12gb {closed}"
    done = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr


def test_words_that_cannot_be_written_do_not_change_the_outcome(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*PROGRAM, "watch", "nothing"], cwd=folder, stdout=full, stderr=full, check=False)
    assert done.returncode == ExitCode.RUN_DIR


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_a_dumb_terminal_is_sent_no_control_sequences(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, term: str
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    rows = [{"v": 1, "t": 10.0 + n, "host": {"mem_available_bytes": 1 << 30}, "gpus": []} for n in range(3)]
    (tmp_path / "telemetry.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stdout", screen)
    assert main(["monitor", "--replay", str(tmp_path / "telemetry.jsonl"), "--speed", "0"]) == 0
    assert ("\x1b" in screen.getvalue()) == (term == "xterm")


# --- disks ----------------------------------------------------------------------------------------------------------


def on_a_small_disk(folder: Path, options: str, command: str) -> tuple[int, str]:
    """The command in a copy of `folder` on a disk of its own, filled or remounted; skipped where none may be mounted."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    disk = folder.parent / "disk"
    disk.mkdir(exist_ok=True)
    prepare = "remount" if options == "ro" else "fill"
    script = (
        f"mount -t tmpfs -o size=400k tmpfs {disk} && cp -r {folder}/runs {disk}/ && cd {disk} || exit 99; "
        + (f"mount -o remount,ro {disk} || exit 99; " if prepare == "remount" else "cat /dev/zero >fill 2>/dev/null; ")
        + f"exec {' '.join(PROGRAM)} {command}"
    )
    flags = ["-m"] if os.geteuid() == 0 else ["-rm"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        ["unshare", *flags, "sh", "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode == 99 or "unshare failed" in done.stderr:
        pytest.skip("no disk may be mounted here")
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("kind", ["full", "ro"])
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("ls", 0),
        ("doctor", 0),  # says that no report file was written
        ("report", 6),
        ("profiles cp cpu-tiny mine.toml", 6),
        ("run --profile cpu-tiny --task sort-digits", 6),
        ("probe --run last", 6),
    ],
)
def test_a_full_and_a_read_only_disk_are_told_by_who_must_write(
    folder: Path, kind: str, command: str, code: int
) -> None:
    found, err = on_a_small_disk(folder, kind, command)
    assert found == code or (command == "doctor" and found == 5)
    if code == 6:
        assert "error: " in err and ("disk" in err or "Read-only" in err)


def test_a_failed_write_leaves_the_old_content_and_is_told_even_where_nothing_can_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "open", read_only)
    monkeypatch.setattr(Path, "write_text", read_only)
    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(RunDirError, match="cannot be written: Read-only file system"):
        write_text_atomic(target, "new")
    with pytest.raises(RunDirError, match="cannot be written: Read-only file system"):
        write_jsonl(target, [{"x": 1}])
    monkeypatch.undo()
    assert target.read_text() == "old"


def test_a_supervisor_that_could_not_write_is_told_as_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("spark_rl.cli.follow.shutil.disk_usage", lambda path: usage._replace(free=0))
    with pytest.raises(RunDirError, match="the disk is full"):
        tell_silent_end(RunDir(tmp_path), 1)
