"""What .venv holds against what lock files ask for, as JSON on stdout. Run with .venv's Python: `_installed.py LOCK...`.

`expected`: name -> version on this machine; `found`: name -> version that is there as it should be; `wrong`: name ->
reason, for what is missing, of another version, or only half there after an interrupted install; `debris`: folders that
such an install left behind. Uses pip's own parser of
requirement lines, since nothing else is sure to be installed yet.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import sysconfig
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name
from pip._vendor.packaging.version import Version


def expected_versions(lock_texts: list[str]) -> dict[str, str]:
    """Name -> version of every pin whose marker holds for this Python on this machine."""
    versions: dict[str, str] = {}
    for text in lock_texts:
        for line in text.splitlines():
            requirement = line.partition("#")[0].strip()
            if not requirement:
                continue
            pin = Requirement(requirement)
            if pin.marker is None or pin.marker.evaluate():
                versions[canonicalize_name(pin.name)] = next(iter(pin.specifier)).version
    return versions


def fault(distribution: importlib.metadata.Distribution, wanted: str) -> str | None:
    """Why this installed package will not do, or None. A local version (2.13.0+cpu) satisfies its public one."""
    if distribution.version is None or distribution.read_text("RECORD") is None:
        return "half installed"
    found = Version(distribution.version)
    if wanted not in (found.public, str(found)):
        return f"has {found}, wants {wanted}"
    for file in distribution.files or ():
        if file.size:
            try:
                if Path(str(file.locate())).stat().st_size == 0:
                    return f"{file} is empty"
            except FileNotFoundError:
                return f"{file} is missing"
    return None


def compare(expected: dict[str, str], site: Path) -> tuple[dict[str, str], dict[str, str]]:
    """`found` and `wrong` of each expected package."""
    found: dict[str, str] = {}
    wrong = dict.fromkeys(expected, "missing")
    for folder in site.glob("*.dist-info"):
        name = canonicalize_name(folder.name.removesuffix(".dist-info").rpartition("-")[0])
        if name not in expected or name in found:
            continue
        distribution = importlib.metadata.PathDistribution(folder)
        reason = fault(distribution, expected[name])
        if reason is None:
            found[name] = distribution.version
            del wrong[name]
        else:
            wrong[name] = reason
    return found, wrong


def debris(site: Path) -> list[str]:
    """Folders of packages that were being put in place or taken away when pip was stopped."""
    moved = [str(folder) for folder in site.glob("~*")]
    headless = [str(folder) for folder in site.glob("*.dist-info") if not (folder / "RECORD").exists()]
    return moved + headless


def main() -> None:
    site = Path(sysconfig.get_path("purelib"))
    expected = expected_versions([Path(name).read_text() for name in sys.argv[1:]])
    found, wrong = compare(expected, site)
    print(json.dumps({"expected": expected, "found": found, "wrong": wrong, "debris": debris(site)}))


if __name__ == "__main__":
    main()
