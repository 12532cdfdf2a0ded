"""Text of pages: templates, tables, wrapped lines and anchors."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""Folder of the repository."""

WIDTH = 120
"""Columns of a line of text on a page."""

_BLOCK = re.compile(r"^(<!-- generated: ([A-Z]+) -->)$.*?^(<!-- end -->)$", re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r"(`[^`\n]+`|[^\s`(*|>]+)<!--([A-Z]+)-->")
_WHOLE = re.compile(r"``[^`\n]+``|`[^`\n]+`|\[[^\]\n]+\]\([^)\s]+\)")


def filled(page: str, **parts: str) -> str:
    """The text of a page below docs/ with its generated parts renewed.

    A block stands between the lines ``<!-- generated: ROWS -->`` and ``<!-- end -->``. A value stands before
    ``<!--ROWS-->``: it is one word, or text in backticks. ROWS is a name in `parts`; each must be on the page.
    """
    text = (ROOT / "docs" / page).read_text()
    names = {*re.findall(r"<!-- generated: ([A-Z]+) -->", text), *re.findall(r"<!--([A-Z]+)-->", text)}
    if apart := names ^ parts.keys():
        raise ValueError(f"{page}: {', '.join(sorted(apart))} is not both on the page and generated")
    text = _BLOCK.sub(lambda block: f"{block[1]}\n\n{parts[block[2]].strip()}\n\n{block[3]}", text)
    return _VALUE.sub(lambda value: value[0].replace(value[1].strip("`"), parts[value[2]], 1), text)


def table(head: str, rows: Iterable[Sequence[str]]) -> str:
    """A table without its last line break. head: the names of the columns with bars between them."""
    rule = "---|" * (head.count("|") + 1)
    return "\n".join([f"| {head} |", f"|{rule}", *(f"| {' | '.join(row)} |" for row in rows)])


def wrapped(text: str, indent: str = "") -> str:
    """`text` in lines of at most `WIDTH` columns; code and links stay whole. indent: for all lines but the first."""
    glued = _WHOLE.sub(lambda whole: whole[0].replace(" ", "\0"), text)
    lines = textwrap.fill(glued, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def anchor(heading: str) -> str:
    """Anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
