"""Pages are read in editors and reviewed as diffs, too: no line of prose is wider than 120 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_blocks import blocks

ROOT = Path(__file__).parents[2]
WIDTH = 120
PAGES = sorted(
    {
        *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "SCOPE")),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("charts/*/README.md"),
        *ROOT.glob("examples/**/README.md"),
        *ROOT.glob("image/README.md"),
    }
)
LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))")


def too_wide(page: Path) -> Iterator[int]:
    """Numbers of the lines; tables and blocks of code are as wide as they have to be, and so are addresses of links."""
    code = {line for block in blocks(page) for line in range(block.line, block.line + block.text.count("\n") + 1)}
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if number not in code and not line.lstrip().startswith("|") and len(LINK.sub("", line)) > WIDTH:
            yield number


def test_lines_of_prose_are_at_most_120_columns_wide() -> None:
    found = {str(page.relative_to(ROOT)): list(too_wide(page)) for page in PAGES}

    assert len(found) > 100
    assert {page: lines for page, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("word " * 25, [1]),
        (f"[a link]({'x' * 200})", []),
        ("| cell " * 30, []),
        (f"```sh\n{'command ' * 20}\n```\n\n{'word ' * 25}", [5]),
    ],
)
def test_tables_code_and_addresses_may_be_wider(tmp_path: Path, text: str, wide: list[int]) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)

    assert list(too_wide(page)) == wide
