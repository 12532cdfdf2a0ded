"""What the generators of pages share: lines of at most `WIDTH` columns, and names of headings."""

from __future__ import annotations

import re
import textwrap

WIDTH = 120
"""Columns of a line of text on a page."""

_WHOLE = re.compile(r"`[^`\n]+`|\[[^\]\n]+\]\([^)\s]+\)")


def wrapped(text: str, indent: str = "") -> str:
    """`text` in lines of at most `WIDTH` columns, with spans of code and links whole. indent: of all but the first."""
    glued = _WHOLE.sub(lambda whole: whole[0].replace(" ", "\0"), text)
    lines = textwrap.fill(glued, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def anchor(heading: str) -> str:
    """What a heading is called in a link, as GitHub makes it."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
