"""ProperDocs hooks for tables and pictures on screens of any width; `assets/site.css` has the styles.

A cell gets the name of its column, so that a narrow screen can show a row as a block of `column: value`. Long names in
cells may break at their capitals and dots. A page with a table of `WIDE` columns or more has no table of contents, so
that the table gets its room.
"""

from __future__ import annotations

import re
from html import escape, unescape
from itertools import chain, repeat

from properdocs.config.defaults import ProperDocsConfig
from properdocs.structure.files import Files
from properdocs.structure.pages import Page

WIDE = 7
"""A table with this many columns or more needs the room of the table of contents."""

_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<td\b")
_CODE = re.compile(r"(?<=<code>)[^<]{12,}(?=</code>)")
_TAG = re.compile(r"<[^>]+>")
_JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[._/,=\])?*+])(?=[\w(\[])|(?<=\w)(?=[(\[])")
_TERMINAL = re.compile(r'<p>(?=<img [^>]*src="[^"]*images/[^"]+\.svg")')


def on_page_content(html: str, page: Page, config: ProperDocsConfig, files: Files) -> str:  # noqa: ARG001 - given by name
    """Hide the table of contents of a page with a wide table, because it takes a fifth of the width."""
    if max(map(_columns, _TABLE.findall(html)), default=0) >= WIDE:
        page.meta["hide"] = [*page.meta.get("hide", []), "toc"]
    return html


def on_post_page(output: str, page: Page, config: ProperDocsConfig) -> str:  # noqa: ARG001 - given by name
    """Name the column of each cell, and mark pictures of terminals. The search has already read the page by then."""
    return _TERMINAL.sub('<p class="terminal">', _TABLE.sub(lambda table: labelled(table[0]), output))


def labelled(table: str) -> str:
    """The table with `data-label` on each cell: the column's name, but not in column 1 or in tables of two columns."""
    names = [escape(unescape(_TAG.sub("", head)).strip()) for head in _HEAD.findall(table)]
    told = ["", *names[1:]] if len(names) > 2 else []  # noqa: PLR2004 - two columns explain themselves
    table = _CODE.sub(lambda code: _JOINT.sub("<wbr>", code[0]), table)
    return _ROW.sub(lambda row: _row(row[0], told), table)


def _row(row: str, names: list[str]) -> str:
    following = chain(names, repeat(""))
    return _CELL.sub(lambda _: f'<td data-label="{next(following)}"', row)


def _columns(table: str) -> int:
    return len(_HEAD.findall(table))
