"""Every alert has a runbook. Its commands are those of the program, and its links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from trimtab_operator.cli.cluster_flags import verb_first
from trimtab_operator.cli.parser import VERBS, parser_for

FOLDER = Path(__file__).parents[2] / "docs" / "runbooks"
RUNBOOKS = sorted(FOLDER.glob("*.md"))
SECTIONS = ("What it means", "What users notice", "What to look at", "What to do", "When to silence it")
COMMAND = re.compile(r"(?:^|`)(trimtab [^`#|\n]+)", re.MULTILINE)

pages = pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)


@pages
def test_commands_are_understood(page: Path) -> None:
    for found in COMMAND.findall(page.read_text()):
        _, *words = shlex.split(found)
        if words == ["VERB"]:
            continue
        assert words[0] in VERBS, found
        words = verb_first(words)
        parser_for(words, []).parse_args(words)  # ends the process where it is not understood


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        file, _, anchor = target.partition("#")
        linked = page.parent / file
        assert linked.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}, target


def test_every_runbook_is_found() -> None:
    assert len(RUNBOOKS) > 10


def test_every_alert_has_a_runbook_and_every_runbook_an_alert(rules: dict[str, dict[str, Any]]) -> None:
    pages = {page.stem: page.read_text() for page in FOLDER.glob("Trimtab*.md")}

    assert pages.keys() == rules.keys()
    for name, text in pages.items():
        assert text.startswith(f"# {name}\n"), name
        assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(SECTIONS), name
        assert rules[name]["labels"]["severity"] in text.splitlines()[2], name


def test_the_list_of_runbooks_is_whole(rules: dict[str, dict[str, Any]]) -> None:
    listed = (FOLDER / "README.md").read_text()

    assert all(f"[{name}]({name}.md)" in listed for name in rules)
