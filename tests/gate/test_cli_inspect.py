"""`spark-rl inspect`: exit codes, one JSON object a line, and a real terminal that is killed in the middle."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spark_rl.cli import main
from spark_rl.gate import write_samples
from spark_rl.gate.opinions import read_opinions
from spark_rl.rundir import RunDir

from .conftest import Bench

DEADLINE_SECONDS = 30.0


@pytest.fixture
def desk(bench: Bench) -> Bench:
    """A bench whose runs know their model, as the commands need it."""
    bench.profile_sets.append(f'model.id="{bench.model_dir}"')
    return bench


def ask(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[dict[str, Any]], str]:
    """(exit code, objects on stdout, stderr)"""
    code = main(["inspect", *map(str, words), "--json"])
    out, error = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], error


def test_from_export_to_signature(desk: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = desk.sampled_run(), desk.folder / "verdicts.csv"
    assert ask(capsys, "export", run.path, path)[0] == 0
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({**row, "verdict": "agree", "reader": "anna"} for row in rows)
    code, answers, _ = ask(capsys, "import", run.path, path)
    assert (code, answers[0]["verdicts"], answers[0]["readers"]) == (0, 50, ["anna"])
    code, answers, _ = ask(capsys, "sign", run.path)
    assert (code, answers[0]["kind"], answers[0]["agree"]) == (0, "person", 50)
    code, answers, _ = ask(capsys, "status", run.path)
    assert (code, answers[0]["signed"], answers[0]["holds"], answers[0]["missing"]) == (0, True, True, [])


def test_signing_too_early_is_exit_4_with_what_is_missing(desk: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    run = desk.sampled_run()
    code, answers, error = ask(capsys, "sign", run.path)
    assert (code, answers) == (4, [])
    assert "50 of 50 samples have no verdict" in error
    assert "hint: read them: spark-rl inspect review" in error


def test_the_run_is_found_by_name_and_the_last_one_by_default(desk: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    first, last = desk.sampled_run(), desk.sampled_run()
    assert ask(capsys, "status", first.name, "--runs", desk.runs)[1][0]["run"] == first.name
    assert ask(capsys, "status", "--runs", desk.runs)[1][0]["run"] == last.name


def test_a_run_that_is_not_there_is_exit_6(desk: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "status", "nowhere", "--runs", desk.runs)[0] == 6


@pytest.mark.parametrize("action", ["review", "export", "sign", "rescore"])
def test_without_samples_every_action_is_exit_4_and_names_the_command(
    desk: Bench, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    code, _, error = ask(capsys, action, desk.new_run().path)
    assert code == 4
    assert "spark-rl inspect sample" in error


def test_status_works_before_anything_was_drawn(desk: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    code, answers, _ = ask(capsys, "status", desk.new_run().path)
    assert (code, answers[0]["samples"], answers[0]["signed"]) == (0, 0, False)


def test_status_says_what_changed_since_signing(desk: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    run = desk.signed_run()
    desk.rewrite("my_reward.py", lambda text: text.replace("0.0", "0.5"))
    _, answers, _ = ask(capsys, "status", run.path)
    assert (answers[0]["signed"], answers[0]["holds"]) == (True, False)
    assert answers[0]["missing"] == ["changed since it was signed: reward: correct"]


def test_status_of_a_run_whose_task_is_gone_says_so(desk: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    run = desk.signed_run()
    desk.task_file.unlink()
    code, answers, _ = ask(capsys, "status", run.path)
    assert (code, answers[0]["holds"]) == (0, None)
    assert "no such task file" in answers[0]["missing"][0]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda recipe: recipe["grpo"].update(brand_new=1), r"GrpoSection\.brand_new"),
        (lambda recipe: recipe.pop("grpo"), "not a recipe: KeyError: 'grpo'"),
    ],
)
def test_a_recipe_of_another_version_is_exit_6_and_names_the_key(
    desk: Bench, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], Any], told: str
) -> None:
    run = desk.sampled_run()
    recipe = json.loads(run.recipe.read_text())
    change(recipe)
    run.recipe.write_text(json.dumps(recipe))
    code, _, error = ask(capsys, "sign", run.path)
    assert code == 6
    assert re.search(told, error)


def test_status_in_words_fits_80_columns(desk: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    desk.rewrite("task.toml", lambda text: text.replace("<\\d+>", "<x>"))
    run = desk.sampled_run()
    desk.say(run, "disagree", ["s001"], note="a long note " * 20)
    assert main(["inspect", "status", str(run.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "! 0 of 50 samples ever score on format" in "\n".join(lines)
    assert "not signed" in lines


def test_rescoring_tells_what_it_reopened(desk: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    run = desk.sampled_run()
    desk.agree_to_all(run)
    desk.rewrite("my_reward.py", lambda text: text.replace('text == f"<{right}>"', "right in text"))
    code, answers, _ = ask(capsys, "rescore", run.path)
    assert (code, answers[0]["samples"], len(answers[0]["reopened"])) == (0, 50, 16)


def test_export_without_a_file_is_one_json_object_a_line(desk: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    code, answers, _ = ask(capsys, "export", desk.sampled_run().path)
    assert (code, len(answers)) == (0, 50)


@pytest.mark.parametrize("name", ["v.xlsx", "nowhere/v.csv"])
def test_a_file_that_cannot_be_written_is_exit_2(desk: Bench, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert ask(capsys, "export", desk.sampled_run().path, desk.folder / name)[0] == 2


def test_an_action_that_does_not_exist_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "skip"]) == 2
    assert "invalid choice" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--force", "--yes", "--skip", "--no-gate"])
def test_signing_knows_no_flag_that_skips(desk: Bench, capsys: pytest.CaptureFixture[str], flag: str) -> None:
    assert main(["inspect", "sign", str(desk.sampled_run().path), flag]) == 2


def test_reading_without_a_terminal_is_exit_2_and_points_to_export(
    desk: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = ask(capsys, "review", desk.sampled_run().path)
    assert code == 2
    assert "inspect export" in error
    assert "inspect import" in error


@pytest.mark.parametrize("reader", ["script", "oracle"])
def test_no_program_reads_at_a_terminal(desk: Bench, capsys: pytest.CaptureFixture[str], reader: str) -> None:
    assert ask(capsys, "review", desk.sampled_run().path, "--reader", reader)[0] == 2


# --- a real terminal ------------------------------------------------------------------------------------------------


class Typist:
    """`spark-rl inspect review` in a pseudo-terminal."""

    def __init__(self, run: RunDir, environment: dict[str, str] | None = None) -> None:
        self.master, slave = pty.openpty()
        command = [sys.executable, "-m", "spark_rl", "inspect", "review", str(run.path), "--reader", "anna"]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **(environment or {})}
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            # A test run in the background of a script ignores SIGINT, and its children would too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        os.close(slave)
        self.seen = b""

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Read what is drawn until `done`."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not done():
            assert time.monotonic() < deadline, self.seen[-2000:]
            ready, _, _ = select.select([self.master], [], [], 0.05)
            if ready:
                try:
                    self.seen += os.read(self.master, 65536)
                except OSError:
                    assert done(), self.seen[-2000:]

    def wait_for_text(self, *texts: str) -> None:
        self.wait_for(lambda: all(text.encode() in self.seen for text in texts))

    def type(self, text: str) -> None:
        self.seen = b""
        os.write(self.master, text.encode())

    def close(self) -> int:
        code = self.process.wait(DEADLINE_SECONDS)
        os.close(self.master)
        return code


def test_verdicts_survive_kill_9(desk: Bench) -> None:
    run = desk.sampled_run()
    typist = Typist(run)
    typist.wait_for_text("any key begins")
    for number, key in enumerate("xaau", start=1):
        typist.type(key)
        typist.wait_for_text(f"sample {number} of 50")
    typist.process.send_signal(signal.SIGKILL)
    typist.close()
    assert [one.says for one in read_opinions(run)] == ["agree", "agree", "unsure"]


def test_a_line_is_typed_and_the_terminal_is_put_back_on_leaving(desk: Bench) -> None:
    run = desk.sampled_run()
    typist = Typist(run)
    before = termios.tcgetattr(typist.master)
    typist.wait_for_text("any key begins")
    typist.type("x")
    typist.wait_for_text("sample 1 of 50")
    typist.type("d")
    typist.wait_for_text("what should it have scored")
    typist.type("größer\n")
    typist.wait_for_text("sample 2 of 50")
    typist.type("q")
    typist.wait_for_text("1 verdict saved")
    assert termios.tcgetattr(typist.master)[3] == before[3]
    assert typist.close() == 0
    assert read_opinions(run)[-1].note == "größer"


def test_single_keys_work_again_after_ctrl_z_and_fg(desk: Bench) -> None:
    run = desk.sampled_run()
    typist = Typist(run)
    cooked = termios.tcgetattr(typist.master)
    typist.wait_for_text("any key begins")
    typist.process.send_signal(signal.SIGSTOP)
    termios.tcsetattr(typist.master, termios.TCSANOW, cooked)
    typist.process.send_signal(signal.SIGCONT)
    typist.wait_for(lambda: termios.tcgetattr(typist.master)[3] != cooked[3])
    typist.type("x")
    typist.wait_for_text("sample 1 of 50")
    typist.type("q")
    assert typist.close() == 0


def test_interrupting_puts_the_terminal_back_and_is_exit_130(desk: Bench) -> None:
    typist = Typist(desk.sampled_run())
    typist.wait_for_text("any key begins")
    typist.type("x")
    typist.wait_for_text("sample 1 of 50")
    typist.process.send_signal(signal.SIGINT)
    assert typist.close() == 130


def test_another_encoding_than_utf_8_shows_escapes_and_does_not_crash(desk: Bench) -> None:
    run = desk.new_run()
    samples = [replace(sample, completion="größer 你好 \x1b[2J") for sample in desk.samples()]
    write_samples(run, samples, desk.fingerprint())
    typist = Typist(run, {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"})
    typist.wait_for_text("any key begins")
    typist.type("x")
    typist.wait_for_text("gr\\xf6\\xdfer \\u4f60\\u597d \\x1b[2J")
    typist.type("q")
    typist.wait_for_text("0 verdicts saved")
    assert typist.close() == 0
