"""What the generated pages contain. `make check` finds those that are out of date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trimtab_operator.proposals.states import TRANSITIONS
from trimtab_strategies import registry

DOCS = Path(__file__).parents[2] / "docs"
TABLES = (registry.SHEDDERS, registry.PLACEMENTS, registry.SPLITTERS, registry.SELECTIONS)


def test_every_algorithm_has_a_drawing_and_each_drawing_is_shown_once() -> None:
    algorithms, trim = ((DOCS / "explanation" / f"{page}.md").read_text() for page in ("algorithms", "trim"))

    for table in TABLES[:3]:
        assert [name for name in table if name not in algorithms] == []
    drawn = re.findall(r"\]\(([\w-]+\.svg)\)", algorithms + trim)
    assert sorted(drawn) == sorted(path.name for path in (DOCS / "explanation").glob("*.svg"))


@pytest.mark.parametrize("page", ["calibration", "comparison", "side-by-side"])
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
