"""The commands of the runbooks are those of the program, and their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from trimtab_operator.cli.parser import VERBS, parser_for

RUNBOOKS = sorted((Path(__file__).parents[2] / "docs" / "runbooks").glob("*.md"))
COMMAND = re.compile(r"(?:^|`)(trimtab [^`#|\n]+)", re.MULTILINE)

pages = pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)


@pages
def test_commands_are_understood(page: Path) -> None:
    for found in COMMAND.findall(page.read_text()):
        _, *words = shlex.split(found)
        if words == ["VERB"]:
            continue
        assert words[0] in VERBS, found
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
