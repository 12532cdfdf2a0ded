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

_WHOLE = re.compile(r"``[^`\n]+``|`[^`\n]+`|\[[^\]\n]+\]\([^)\s]+\)")


def filled(template: str, **parts: str) -> str:
    """The text of a template in docs/templates, with `parts` inserted: `ROWS` replaces ``@ROWS@``."""
    text = (ROOT / "docs" / "templates" / template).read_text()
    return re.sub(r"@([A-Z]+)@", lambda name: parts[name[1]], text)


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
