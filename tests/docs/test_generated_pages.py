"""The generated pages are those that the code makes, and what they say of their numbers is true."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab_lab.simulation import SCENARIOS
from trimtab_operator.cli.main import main
from trimtab_operator.cli.parser import VERBS
from trimtab_operator.proposals.states import TRANSITIONS
from trimtab_strategies import registry
from trimtab_strategies.model import Reason
from trimtab_strategies.params import pulsar_keys

DOCS = Path(__file__).parents[2] / "docs"
TABLES = (registry.SHEDDERS, registry.PLACEMENTS, registry.SPLITTERS, registry.SELECTIONS)
ROWS = [pytest.param(name, row, id=name) for table in TABLES for name, row in table.items()]  # type: ignore[attr-defined]


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(DOCS / "tools" / "generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_pages_are_up_to_date() -> None:
    """All but the comparison, which `test_comparison.py` makes."""
    checked = generate("--check", "--quick")

    assert checked.returncode == 0, checked.stderr


def test_reference_has_every_field_of_every_kind() -> None:
    """Down to the last leaf of the schemas, and with the bounds that the API server enforces."""
    for file in (DOCS.parent / "crds").glob("*.yaml"):
        crd = yaml.safe_load(file.read_text())
        page = (DOCS / "reference" / f"{crd['spec']['names']['singular']}.md").read_text()
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        shown = set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)) | set(
            re.findall(r"^### (\S+)", page, re.MULTILINE)
        )
        missing = [path for path in leaves(schema) if not any(path.endswith(field) for field in shown)]
        assert missing == [], file.name


def leaves(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Paths of all fields below spec and status."""
    for name, field in schema.get("properties", {}).items():
        inside = field.get("items") or field
        here = f"{path}{name}"
        if here not in {"apiVersion", "kind", "metadata", "spec", "status"}:
            yield here
        yield from leaves(inside, f"{here}{'[]' if field.get('type') == 'array' else ''}.")


def test_reference_has_every_verb_and_flag(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "reference" / "cli.md").read_text()

    for verb in VERBS:
        section = page.split(f"### trimtab {verb}\n")[1].split("\n### ")[0]
        assert f"[`{verb}`](#trimtab-{verb}) | {VERBS[verb].help} |" in page
        assert main([verb, "--help"]) == 0
        shown = capsys.readouterr().out
        flags = set(re.findall(r"^  (--[\w-]+)|^  -\w(?: [A-Z]+)?, (--[\w-]+)", shown, re.MULTILINE))
        for flag in {flag for pair in flags for flag in pair if flag} - {"--help"}:
            assert flag in section, f"{verb} {flag}"


def test_reference_has_every_reason_and_conditions_that_exist() -> None:
    page = (DOCS / "reference" / "reasons.md").read_text()
    source = "".join(path.read_text() for path in (DOCS.parent / "operator" / "src").rglob("*.py"))

    assert [reason for reason in Reason if f"| `{reason}` |" not in page] == []
    conditions = re.findall(r"^\| [A-Z]\w+ \| `(\w+)` \|", page.split("## Events\n")[0], re.MULTILINE)
    assert len(conditions) > 15
    assert [name for name in conditions if f'"{name}"' not in source] == []


def test_every_algorithm_has_a_drawing_and_each_drawing_an_algorithm() -> None:
    page = (DOCS / "explanation" / "algorithms.md").read_text()

    for table in TABLES[:3]:
        assert [name for name in table if name not in page] == []
    drawn = re.findall(r"\]\(([\w-]+\.svg)\)", page)
    assert sorted(drawn) == sorted(path.name for path in (DOCS / "explanation").glob("*.svg"))


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_reference_names_every_parameter_key_and_defect(name: str, row: registry.Row[registry.Shedder]) -> None:
    text = (DOCS / "strategies.md").read_text()

    assert row.summary in text
    assert all(f"`{info.alias}`" in text for info in row.params.model_fields.values())
    assert all(f"`{key}`" in text for key in pulsar_keys(row.params))
    assert all(f"| {defect.original} | {defect.corrected} |" in text for defect in row.defects), name


@pytest.mark.parametrize("page", ["comparison", "side-by-side"])
def test_pages_of_figures_begin_with_what_came_of_it(page: str) -> None:
    """How it was measured stands below, however important."""
    headings = re.findall(r"^## (.+)$", (DOCS / f"{page}.md").read_text(), re.MULTILINE)

    assert headings[0] == "In short"
    assert "How it was measured" in headings


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
