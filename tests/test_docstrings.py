"""Every module says what it is, and every public name what it is, takes and returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(ROOT.glob("*/src/trimtab_*/**/*.py"))


def public(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Public classes and functions, with the public methods of public classes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield f"{prefix}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from public(node, f"{prefix}{node.name}.")


def test_there_are_modules() -> None:
    assert len(MODULES) > 50


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_public_names_are_documented(module: Path) -> None:
    tree = ast.parse(module.read_text())
    bare = [name for name, node in public(tree) if ast.get_docstring(node) is None]

    assert ast.get_docstring(tree), "the module does not say what it is"
    assert bare == []
