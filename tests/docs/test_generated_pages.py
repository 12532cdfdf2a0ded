"""The generated pages are those that the code makes, and what they say of their numbers is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab_operator.control.proposal_states import TRANSITIONS
from trimtab_strategies import registry
from trimtab_strategies.params import pulsar_keys
from trimtab_strategies.simulation import SCENARIOS

DOCS = Path(__file__).parents[2] / "docs"
TABLES = (registry.SHEDDERS, registry.PLACEMENTS, registry.SPLITTERS, registry.SELECTIONS)
ROWS = [pytest.param(name, row, id=name) for table in TABLES for name, row in table.items()]  # type: ignore[attr-defined]


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(DOCS / "generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.parametrize("page", ["strategies", "comparison", "proposals", "metrics"])
def test_page_is_up_to_date(page: str) -> None:
    """For the comparison this runs every scenario anew, and checks each of its sentences."""
    checked = generate("--check", page)

    assert checked.returncode == 0, checked.stderr


def test_unknown_page_is_refused() -> None:
    refused = generate("--check", "novel")

    assert refused.returncode == 2
    assert "no such page: novel; use strategies, comparison, proposals, metrics" in refused.stderr


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_reference_names_every_parameter_key_and_defect(name: str, row: registry.Row[registry.Shedder]) -> None:
    text = (DOCS / "strategies.md").read_text()

    assert row.summary in text
    assert all(f"`{info.alias}`" in text for info in row.params.model_fields.values())
    assert all(f"`{key}`" in text for key in pulsar_keys(row.params))
    assert all(f"| {defect.original} | {defect.corrected} |" in text for defect in row.defects), name


@pytest.mark.parametrize("scenario", [scenario.title for scenario in SCENARIOS])
def test_comparison_shows_every_shedder_in_every_scenario(scenario: str) -> None:
    section = (DOCS / "comparison.md").read_text().split(f"## {scenario}\n")[1].split("\n## ")[0]

    for shedder in registry.SHEDDERS:
        assert {"Pulsar", "Trimtab"} <= set(re.findall(rf"^\| {shedder} \| (\w+) \|", section, re.MULTILINE))
    assert section.rstrip().endswith("."), "nothing is said about it"


def test_drawing_of_proposals_has_every_transition_and_nothing_else() -> None:
    drawn = re.findall(r"^    (\w+) --> (\w+): (.+)$", (DOCS / "proposals.md").read_text(), re.MULTILINE)

    arrows = {(state, end, event) for state, end, events in drawn for event in re.split(r", (?!some)", events)}
    assert arrows == {
        (state, end, event) for state, ways in TRANSITIONS.items() for event, end in ways.items() if end is not state
    }


@pytest.mark.parametrize("page", ["strategies", "comparison", "proposals"])
def test_links_lead_somewhere(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text()
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }

    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors
        elif not target.startswith("https://"):
            assert (DOCS / target).exists(), target
