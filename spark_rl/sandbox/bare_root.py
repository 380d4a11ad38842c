"""A folder that holds one interpreter and what it needs, to be used as a root where nothing can be mounted.

In:  the interpreter. Out: a folder of about 60 MB under the temporary directory, copied once per pool.
The name carries our process id, so that a later pool can remove what a killed one left.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from spark_rl.sandbox import layout
from spark_rl.sandbox.layout import Interpreter

PREFIX = "spark-rl-sandbox-"
_LOAD_EVERYTHING = """
import contextlib, importlib, pathlib, _ctypes
for path in pathlib.Path(_ctypes.__file__).parent.glob("*.so"):
    name = path.name.partition(".")[0]
    if not name.startswith(("_test", "_tkinter", "xxlimited")):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
print(open("/proc/self/maps").read())
"""
_MAPPED_LIBRARY = re.compile(r"\s(/\S+\.so[\w.\-]*)$", re.MULTILINE)


def make_private_folder() -> Path:
    """A folder that only we can enter, under the temporary directory."""
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))


def remove_stale_folders(parent: Path | None = None) -> None:
    """Remove the folders of processes that no longer exist."""
    for folder in (parent or Path(tempfile.gettempdir())).glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists() and folder.stat().st_uid == os.geteuid():
            remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder whatever its permissions and depth; links are removed, never followed."""
    empty_folder(folder)
    folder.rmdir()


def empty_folder(folder: Path) -> None:
    """Remove everything in a folder. Works through descriptors, so that neither depth nor links mislead it."""
    pending = [str(folder)]
    while pending:
        current = pending.pop()
        deeper = []
        with os.scandir(current) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    Path(entry.path).unlink()
                    continue
                Path(entry.path).chmod(stat.S_IRWXU)
                deeper.append(entry.path)
        for path in deeper:
            # Bring a nested folder up to the top instead of descending: paths stay short however deep it was.
            raised = f"{folder}/.removing-{os.urandom(8).hex()}"
            os.rename(path, raised)  # noqa: PTH104
            with os.scandir(raised) as entries:
                is_empty = not any(True for _ in entries)
            if is_empty:
                Path(raised).rmdir()
            else:
                pending.append(raised)
        if current != str(folder):
            Path(current).rmdir()


def build(python: Interpreter, root: Path) -> None:
    """Copy the interpreter, its library and the C libraries it maps into `root`, readable by all, writable by us."""
    root.chmod(0o755)
    for source, target in layout.binds(python):
        if str(source) in layout.LIBRARY_FOLDERS or str(source) == layout.TIME_ZONES:
            continue
        copy(source, root / target.relative_to("/"))
    for library in mapped_libraries(python):
        copy(library, root / library.relative_to("/"))
    for text, target in layout.links():
        link = root / target.relative_to("/")
        if not link.exists():
            link.symlink_to(text)
    (root / "dev").mkdir()
    for device in layout.DEVICES:
        copy_device(device, root)
    scratch = root / layout.SCRATCH.relative_to("/")
    scratch.mkdir(mode=0o711)
    scratch.chmod(0o711)


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=False, ignore=_ignored, dirs_exist_ok=True)
    elif not target.exists():
        shutil.copy2(source, target)


def _ignored(folder: str, names: list[str]) -> Iterable[str]:
    # The build configuration folder holds a static library of 40 MB.
    return [name for name in names if name in layout.MASKED or name.startswith("config-") or ".opt-" in name]


def copy_device(device: str, root: Path) -> None:
    """A device node where we may make one; else a file: /dev/null then is an empty file that nobody else may write."""
    target = root / device.lstrip("/")
    facts = Path(device).stat()
    try:
        os.mknod(target, stat.S_IFCHR | 0o666, facts.st_rdev)
        target.chmod(0o666)
    except PermissionError:
        target.touch(mode=0o444)


def mapped_libraries(python: Interpreter) -> list[Path]:
    """The shared libraries that this interpreter loads with every extension module of its library."""
    done = subprocess.run(
        [str(python.executable), "-I", "-S", "-c", _LOAD_EVERYTHING], capture_output=True, text=True, check=True
    )
    mapped = {Path(path) for path in _MAPPED_LIBRARY.findall(done.stdout)}
    system = {path for path in mapped if python.library.parent not in path.parents or path.parent == Path("/usr/lib")}
    loaders = {path for folder in ("/lib64", "/lib") for path in Path(folder).glob("ld-linux-*.so.*")}
    named = {path.parent.resolve() / path.name for path in loaders} | system
    # A library is looked up by its short name (libz.so.1), which is a link to the file that is mapped (libz.so.1.2).
    for real in system:
        named |= {link for link in real.parent.glob(real.name.partition(".so")[0] + ".so*") if link.resolve() == real}
    return sorted(named)
