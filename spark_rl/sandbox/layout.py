"""What the sandbox's file system shows: one interpreter, its standard library, the C libraries, four devices.

In:  facts about the interpreter that is running. Out: pairs of host path and path inside. Pure, apart from looking
which paths exist. Nothing of /etc, /home, /root, /proc, /sys, /run or /var, no site-packages, no project.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

PYTHON_HOME = Path("/python")
CODE_HOME = Path("/code")
SCRATCH = Path("/tmp")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
LIBRARY_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
TIME_ZONES = "/usr/share/zoneinfo"
# Folders of the standard library that no sample needs, or that hold installed packages.
MASKED = ("site-packages", "dist-packages", "test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3")
SYSTEM_PREFIXES = (Path("/usr"), Path("/usr/local"))


@dataclass(frozen=True)
class Interpreter:
    """Where the interpreter that runs us really lives (never a virtual environment's link)."""

    executable: Path
    library: Path
    """Its standard library, such as /usr/lib/python3.11."""
    shared: tuple[Path, ...]
    """Shared libraries beside it, for interpreters that are not the system's."""
    package: Path
    """The folder spark_rl/sandbox/inside."""

    @property
    def library_name(self) -> str:
        return self.library.name


def this_interpreter() -> Interpreter:
    """The interpreter of this process, seen past any virtual environment."""
    prefix = Path(sys.base_prefix)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = prefix / "lib" / name
    base_executable = getattr(sys, "_base_executable", None) or sys.executable
    shared = () if prefix in SYSTEM_PREFIXES else tuple(sorted((prefix / "lib").glob("*.so*")))
    return Interpreter(
        executable=Path(base_executable).resolve(),
        library=library,
        shared=shared,
        package=Path(__file__).resolve().parent / "inside",
    )


def binds(python: Interpreter) -> list[tuple[Path, Path]]:
    """(host path, path inside) of everything readable; symbolic links among system folders are listed by `links`."""
    pairs = [(Path(folder), Path(folder)) for folder in LIBRARY_FOLDERS if Path(folder).is_dir()]
    pairs = [(source, target) for source, target in pairs if not source.is_symlink()]
    if Path(TIME_ZONES).is_dir():
        pairs.append((Path(TIME_ZONES), Path(TIME_ZONES)))
    pairs.append((python.executable, inside_executable(python)))
    pairs.append((python.library, PYTHON_HOME / "lib" / python.library_name))
    pairs += [(path, PYTHON_HOME / "lib" / path.name) for path in python.shared]
    pairs.append((python.package, CODE_HOME / python.package.name))
    return pairs


def folders(python: Interpreter) -> list[Path]:
    """Folders inside that hold the binds, parents first."""
    parents = {parent for _, target in binds(python) for parent in target.parents if parent != Path("/")}
    return [*sorted(parents), Path("/dev")]


def links() -> list[tuple[str, Path]]:
    """(link text, path inside): /lib -> usr/lib on systems that merged them."""
    found = [Path(folder) for folder in LIBRARY_FOLDERS if Path(folder).is_symlink()]
    return [(str(path.readlink()), path) for path in found]


def masked(python: Interpreter) -> list[Path]:
    """Folders inside that are covered by an empty one."""
    present = [name for name in MASKED if (python.library / name).is_dir()]
    inside = [PYTHON_HOME / "lib" / python.library_name / name for name in present]
    system_packages = Path("/usr/lib/python3")  # Debian's dist-packages
    return inside + ([system_packages] if system_packages.is_dir() else [])


def inside_executable(python: Interpreter) -> Path:
    return PYTHON_HOME / "bin" / python.library_name


def bootstrap(code_home: Path) -> str:
    """The program that the interpreter in the sandbox starts with."""
    return f"import sys; sys.path.insert(0, {str(code_home)!r}); from inside.zygote import main; main(sys.argv[1])"


def command(executable: Path, code_home: Path, settings: str) -> list[str]:
    """Isolated, without site, in UTF-8: nothing of the host's environment or user site reaches it."""
    return [str(executable), "-I", "-S", "-X", "utf8", "-c", bootstrap(code_home), settings]
