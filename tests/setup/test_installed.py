"""What setup finds wrong in an environment: a site-packages folder made here, with wheels' own bookkeeping."""

from __future__ import annotations

from pathlib import Path

import pytest
from _installed import compare, debris, expected_versions


def put(site: Path, name: str, version: str, files: dict[str, str] | None = None, record: bool = True) -> Path:
    """Install a package by hand, as pip leaves it; without RECORD as pip leaves it when it is killed."""
    files = files or {f"{name}/__init__.py": "x = 1\n"}
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n")
    for file, text in files.items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(text)
    if record:
        lines = [f"{file},sha256=0,{len(text)}" for file, text in files.items()]
        (folder / "RECORD").write_text("\n".join(lines) + "\n")
    return folder


def test_pins_for_other_pythons_and_machines_are_left_out() -> None:
    text = "# title\na==1.0  # b\nb==2 ; python_full_version < '3.0'\nC_d==3 ; python_full_version >= '3.0'  # e\n"
    assert expected_versions([text]) == {"a": "1.0", "c-d": "3"}


def test_a_whole_environment_has_nothing_wrong(tmp_path: Path) -> None:
    put(tmp_path, "PyYAML", "6.0.4")
    put(tmp_path, "torch", "2.13.0+cpu")
    found, wrong = compare({"pyyaml": "6.0.4", "torch": "2.13.0"}, tmp_path)
    assert found == {"pyyaml": "6.0.4", "torch": "2.13.0+cpu"}
    assert wrong == {}


def test_missing_and_other_versions_are_told_apart(tmp_path: Path) -> None:
    put(tmp_path, "a", "1.0")
    assert compare({"a": "1.1", "b": "2"}, tmp_path)[1] == {"a": "has 1.0, wants 1.1", "b": "missing"}


def test_a_package_whose_install_was_cut_off_is_wrong_and_is_debris(tmp_path: Path) -> None:
    folder = put(tmp_path, "a", "1.0", record=False)
    (tmp_path / "~b").mkdir()
    assert compare({"a": "1.0"}, tmp_path)[1] == {"a": "half installed"}
    assert set(debris(tmp_path)) == {str(folder), str(tmp_path / "~b")}


@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_a_lost_or_emptied_file_is_noticed(tmp_path: Path, damage: str) -> None:
    put(tmp_path, "a", "1.0")
    file = tmp_path / "a/__init__.py"
    if damage == "missing":
        file.unlink()
    else:
        file.write_text("")
    assert compare({"a": "1.0"}, tmp_path)[1] == {"a": f"a/__init__.py is {damage}"}
