"""The generated pages are those that the code makes, and what they say of their numbers is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab_operator.proposals.states import TRANSITIONS
from trimtab_strategies import registry

DOCS = Path(__file__).parents[2] / "docs"
TABLES = (registry.SHEDDERS, registry.PLACEMENTS, registry.SPLITTERS, registry.SELECTIONS)


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(DOCS / "tools" / "generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_pages_are_up_to_date() -> None:
    checked = generate("--check")

    assert checked.returncode == 0, checked.stderr


def test_every_algorithm_has_a_drawing_and_each_drawing_an_algorithm() -> None:
    page = (DOCS / "explanation" / "algorithms.md").read_text()

    for table in TABLES[:3]:
        assert [name for name in table if name not in page] == []
    drawn = re.findall(r"\]\(([\w-]+\.svg)\)", page)
    assert sorted(drawn) == sorted(path.name for path in (DOCS / "explanation").glob("*.svg"))


@pytest.mark.parametrize("page", ["comparison", "side-by-side"])
def test_pages_of_figures_begin_with_what_came_of_it(page: str) -> None:
    """How it was measured stands below, however important."""
    headings = re.findall(r"^## (.+)$", (DOCS / f"{page}.md").read_text(), re.MULTILINE)

    assert headings[0] == "In short"
    assert "How it was measured" in headings


def test_drawing_of_proposals_has_every_transition_and_nothing_else() -> None:
    drawn = re.findall(r"^    (\w+) --> (\w+): (.+)$", (DOCS / "proposals.md").read_text(), re.MULTILINE)

    arrows = {(state, end, event) for state, end, events in drawn for event in re.split(r", (?!some)", events)}
    assert arrows == {
        (state, end, event) for state, ways in TRANSITIONS.items() for event, end in ways.items() if end is not state
    }
