"""The structure of the rooms and of the tests: no module too long, no import circle, few class names twice."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("strategies", "pipeline", "operator", "lab", "testbed")
MODULES: Mapping[str, Path] = {
    ".".join(path.relative_to(ROOT / room / "src").with_suffix("").parts).removesuffix(".__init__"): path
    for room in ROOMS
    for path in sorted((ROOT / room / "src").rglob("*.py"))
}
LONGEST = 400
"""Lines of a module, also of the tests."""

TWICE = 0
"""Class names that more than one module may use; it only goes down."""


@cache
def parsed(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text())


def test_every_room_has_modules() -> None:
    assert {name.partition(".")[0] for name in MODULES} == {f"trimtab_{room}" for room in ROOMS}


@pytest.mark.parametrize("name", MODULES)
def test_no_module_is_too_long(name: str) -> None:
    assert len(MODULES[name].read_text().splitlines()) <= LONGEST


def test_no_module_of_the_tests_is_too_long() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py")}
    assert not {str(path.relative_to(ROOT)): count for path, count in lines.items() if count > LONGEST}


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Late imports, inside functions, count as well."""
    try:
        TopologicalSorter({name: set(imports(name)) for name in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(f"import circle: {' -> '.join(error.args[1])}")


def test_few_class_names_stand_twice() -> None:
    names = Counter(node.name for tree in map(parsed, MODULES) for node in tree.body if isinstance(node, ast.ClassDef))
    twice = sorted(name for name, count in names.items() if count > 1)
    assert len(twice) <= TWICE, f"{len(twice)} class names stand twice: {', '.join(twice)}"


def imports(name: str) -> Iterator[str]:
    """The modules of ours that a module imports."""
    for node in ast.walk(parsed(name)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                target = whole if whole in MODULES else node.module
                if target in MODULES and target != name:
                    yield target
