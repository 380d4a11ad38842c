"""Reading the installed packages' source without importing them: contract tests run in a second and need no GPU."""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path

import pytest


@functools.cache
def package_root(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    return Path(spec.origin).parent


@functools.cache
def source(package: str, path: str) -> str:
    file = package_root(package) / path
    assert file.is_file(), f"{package} has no {path} any more"
    return file.read_text()


@functools.cache
def tree(package: str, path: str) -> ast.Module:
    return ast.parse(source(package, path))


def find(package: str, path: str, *names: str) -> ast.AST:
    """The class or function `names[0]`, and inside it `names[1]`, and so on."""
    node: ast.AST = tree(package, path)
    for name in names:
        children = [
            child
            for child in ast.walk(node)
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and child.name == name
        ]
        assert children, f"{package}/{path} has no {'.'.join(names)} any more"
        node = children[0]
    return node


def parameters(package: str, path: str, *names: str) -> dict[str, str | None]:
    """{parameter: source of its default} of a function."""
    arguments = find(package, path, *names).args  # type: ignore[attr-defined]
    positional = [*arguments.posonlyargs, *arguments.args]
    padded = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [*zip(positional, padded, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return {argument.arg: None if default is None else ast.unparse(default) for argument, default in pairs}


def fields(package: str, path: str, name: str) -> dict[str, str | None]:
    """{field: source of its default} of a dataclass."""
    found: dict[str, str | None] = {}
    for node in find(package, path, name).body:  # type: ignore[attr-defined]
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = _default(node.value)
    return found


def _default(value: ast.expr | None) -> str | None:
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "field":
        for keyword in value.keywords:
            if keyword.arg in ("default", "default_factory"):
                return ast.unparse(keyword.value)
        return None
    return None if value is None else ast.unparse(value)


def keywords_of_call(package: str, path: str, callee: str) -> set[str]:
    """Keywords of the calls of a name in a file."""
    found: set[str] = set()
    for node in ast.walk(tree(package, path)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == callee:
            found |= {keyword.arg for keyword in node.keywords if keyword.arg}
    return found
