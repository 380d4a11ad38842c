"""Each isolation method holds, for root, for other users, and in containers; and without one nothing runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_rl.errors import Refused
from spark_rl.rewards.unit_tests import UnitTests
from spark_rl.sandbox import Limits, ProgramJob, Sandbox, TestJob, bare_root, detect, find_isolation, methods, selftest
from spark_rl.sandbox.inside import kernel
from spark_rl.sandbox.methods import METHODS, MethodName

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
NOBODY = 65534


def why_not(method: MethodName) -> str | None:
    """Why this machine cannot show a method; None when it must work."""
    if method == "landlock" and kernel.landlock_version() < 3:
        return "this kernel has no Landlock of ABI 3"
    return methods.may_try(method)


@pytest.fixture(params=METHODS)
def isolated(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A sandbox under each method."""
    if reason := why_not(request.param):
        pytest.skip(f"{request.param}: {reason}")
    with Sandbox(Limits(time_seconds=5.0), num_pairs=1, method=request.param) as sandbox:
        yield sandbox


def test_every_method_judges_and_leaves_nothing(isolated: Sandbox) -> None:
    tests = "def check(candidate):\n    assert candidate(2) == 4\n"
    right = isolated.check(TestJob(["def f(n):\n    return n * n\n"], tests, entry_point="f"))
    wrong = isolated.check(TestJob(["def f(n):\n    return n\n"], tests, entry_point="f"))
    assert (right.passed, wrong.passed) == (True, False)

    writes = isolated.run(ProgramJob(["open('left', 'w').write('x')\nimport os\nprint(os.listdir())\n"]))
    looks = isolated.run(ProgramJob(["import os\nprint(os.listdir())\n"]))
    assert (writes.output, looks.output) == ("['left']\n", "[]\n")

    sees = isolated.run(
        ProgramJob(["import os\nprint(os.environ.get('SECRET_OF_THE_HOST'), os.path.exists('/proc/self/fd'))\n"])
    )
    assert sees.output.split()[0] == "None"

    folder, pids = isolated.isolation.folder, isolated.worker_pids
    isolated.close()
    assert not [pid for pid in pids if Path("/proc", str(pid)).exists()]
    assert folder is None or not folder.exists()


def test_a_method_that_does_not_hold_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "breaches", lambda worker, limits: ["read /etc"])
    with pytest.raises(Refused, match=r"does not hold: read /etc"):
        find_isolation()


def test_without_isolation_the_reward_is_refused_with_every_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "may_try", lambda method: f"no {method} here")
    reward = UnitTests()
    with pytest.raises(Refused) as refused:
        reward([["def f(): return 1"][0]], test=["assert f() == 1"])
    assert all(f"no {method} here" in refused.value.message for method in METHODS)
    assert refused.value.exit_code == 4


def test_the_better_methods_reasons_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    real = methods.may_try
    monkeypatch.setattr(
        methods, "may_try", lambda method: "bwrap is not installed" if method == "bubblewrap" else real(method)
    )
    isolation = find_isolation()
    isolation.close()
    assert isolation.tried[0] == detect.Tried("bubblewrap", "bwrap is not installed")
    assert isolation.method != "bubblewrap"


def smoke(*prefix: str, python: str = sys.executable, **environment: str) -> dict[str, Any]:
    """What smoke.py prints when run behind a prefix."""
    done = subprocess.run(
        [*prefix, python, str(HERE / "smoke.py")],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def assert_holds(facts: dict[str, Any]) -> None:
    assert facts["harmful"] == []
    assert facts["programs"] > 10


def container(kind: str, python: str = sys.executable) -> tuple[str, ...]:
    return (python, str(HERE / "container.py"), kind)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become less than root")


@needs_root
def test_root_in_a_container_without_namespaces_gets_a_bare_root() -> None:
    facts = smoke(*container("docker"))
    assert facts["method"] == "bare_root"
    assert_holds(facts)


@needs_root
@pytest.mark.skipif(kernel.landlock_version() < 3, reason="this kernel has no Landlock of ABI 3")
def test_root_without_any_capability_gets_landlock() -> None:
    facts = smoke(*container("bare"))
    assert facts["method"] == "landlock"
    assert_holds(facts)


def system_python() -> str | None:
    """An interpreter that every user can run: ours, or the system's when it is new enough."""
    for python in (sys.executable, "/usr/bin/python3"):
        # Through a shell: setpriv itself still has root's rights when it looks up the command.
        prefix = (*as_nobody(), "sh", "-c", 'exec "$0" "$@"')
        probe = "import sys; sys.exit(sys.version_info < (3, 11))"
        if (
            shutil.which(python)
            and subprocess.run([*prefix, python, "-c", probe], cwd="/", capture_output=True).returncode == 0
        ):
            return python
    return None


def as_nobody() -> tuple[str, ...]:
    return ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


@pytest.fixture
def nobodys_python() -> str:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv to become another user")
    python = system_python()
    if python is None or subprocess.run([*as_nobody(), "test", "-r", str(HERE / "smoke.py")]).returncode != 0:
        pytest.skip("another user can run no Python 3.11 here, or cannot read this folder")
    return python


def test_another_user_gets_namespaces(nobodys_python: str) -> None:
    facts = smoke(*as_nobody(), python=nobodys_python)
    assert facts["method"] in ("bubblewrap", "namespaces")
    assert_holds(facts)


def test_another_user_without_bubblewrap_gets_namespaces_too(nobodys_python: str) -> None:
    prefix = (shutil.which("setpriv") or "", *as_nobody()[1:])
    facts = smoke(*prefix, python=nobodys_python, PATH="/nonexistent")
    assert facts["method"] == "namespaces"
    assert_holds(facts)


@pytest.mark.skipif(kernel.landlock_version() < 3, reason="this kernel has no Landlock of ABI 3")
def test_another_user_in_a_container_without_namespaces_gets_landlock(nobodys_python: str) -> None:
    facts = smoke(*as_nobody(), *container("docker", nobodys_python), python=nobodys_python)
    assert facts["method"] == "landlock"
    assert_holds(facts)


@pytest.mark.parametrize(
    ("id_map", "user", "expected"),
    [
        ("         0          0 4294967295\n", 61_000, True),
        ("         0       1000          1\n", 61_000, False),
        ("0 1000 1\n1 100000 65536\n", 61_000, True),
        ("", 0, False),
    ],
)
def test_a_user_exists_where_the_map_covers_it(id_map: str, user: int, expected: bool) -> None:
    assert methods.is_mapped(user, id_map) is expected


def test_a_folder_is_emptied_whatever_is_in_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "dangling").symlink_to("/nowhere/at/all")
    (folder / "closed").mkdir()
    (folder / "closed" / "file").write_text("x")
    (folder / "closed").chmod(0)
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(60):  # 60 levels of 200 letters: longer than any path the kernel takes
        os.mkdir("d" * 200, dir_fd=descriptor)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = deeper
    os.close(descriptor)
    bare_root.empty_folder(folder)
    assert list(folder.iterdir()) == []
    assert (outside / "kept").read_text() == "x"


def test_folders_of_dead_processes_are_removed_and_others_kept(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    stale = tmp_path / f"{bare_root.PREFIX}{ended.pid}-x"
    ours = tmp_path / f"{bare_root.PREFIX}{os.getpid()}-x"
    for folder in (stale, ours):
        (folder / "inner").mkdir(parents=True)
    bare_root.remove_stale_folders(tmp_path)
    assert (stale.exists(), ours.exists()) == (False, True)
