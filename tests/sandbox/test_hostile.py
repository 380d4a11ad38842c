"""The hostile battery: no program is rewarded, escapes, hangs, or leaves anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark_rl.sandbox import battery
from spark_rl.sandbox.methods import METHODS, MethodName
from tests.sandbox.smoke import CHOSEN
from tests.sandbox.test_isolation import why_not

HOSTILE = Path(__file__).parent / "hostile"
PROJECT = Path(__file__).parents[2]
ALL_ZERO = {"rewarded": 0, "escaped": 0, "hung": 0, "orphans": 0, "leftovers": 0}


def test_every_program_says_first_what_it_tries() -> None:
    programs = battery.read_programs(HOSTILE)
    assert len(programs) >= 60
    silent = [program.name for program in programs if not program.source.startswith("# ") or len(program.tries) < 10]
    assert silent == []


def harmful(findings: list[battery.Finding]) -> list[str]:
    return [f"{finding.name}: {finding}" for finding in findings if not finding.harmless]


@pytest.mark.parametrize("method", METHODS)
def test_a_choice_of_programs_achieves_nothing_under_any_method(method: MethodName) -> None:
    if reason := why_not(method):
        pytest.skip(f"{method}: {reason}")
    findings = battery.run_battery([battery.read_program(HOSTILE / f"{name}.py") for name in CHOSEN], method=method)
    assert harmful(findings) == []
    assert battery.counts(findings) == {"programs": len(CHOSEN), **ALL_ZERO}


@pytest.mark.slow
def test_no_program_achieves_anything_under_the_method_in_force() -> None:
    """Slow: about a minute, because a quarter of the programs run until their deadline, twice."""
    findings = battery.run_battery(battery.read_programs(HOSTILE))
    assert harmful(findings) == []


def test_the_script_prints_the_counts_last(tmp_path: Path) -> None:
    (tmp_path / "polite.py").write_text("# Tries nothing.\ndef solve(n):\n    return n\n")
    (tmp_path / "loud.py").write_text("# Claims to have escaped.\nprint('ESCAPED: not really')\n")
    done = subprocess.run(
        [sys.executable, PROJECT / "scripts" / "hostile_battery", "--dir", tmp_path], capture_output=True, text=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {"programs": 2, **ALL_ZERO, "escaped": 1}
    assert done.returncode == 1


def run_one(source: str) -> battery.Finding:
    return battery.run_battery([battery.Program("one", "", source)])[0]


def test_a_program_that_knows_an_answer_counts_as_rewarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(battery.Secrets, "answer", lambda self, question: f"answer {question}")
    monkeypatch.setattr(
        battery.Secrets, "honest", lambda self: "def solve(n):\n    return f'answer {n}'\nprint(solve(0))\n"
    )
    assert run_one("def solve(n):\n    return f'answer {n}'\n").rewarded is True


def test_a_file_that_appears_on_the_host_counts_as_an_escape(tmp_path: Path) -> None:
    target = tmp_path / "written"
    before = battery.watch_host(battery.Program("one", "", f"open('{target}', 'w')"))
    target.write_text("x")
    assert battery.changes_on_host(before) == [f"changed {target} on the host"]


def test_a_harness_that_rewards_nobody_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(battery.Secrets, "honest", lambda self: "def solve(n):\n    return n\n")
    with pytest.raises(RuntimeError, match="honest program"):
        run_one("x = 1\n")
