"""Writes the pages that are made from the code: `python docs/generate.py [--check] [PAGE...]`.

`strategies` is the reference of every strategy in the registry; `comparison` runs all shedders through the scenarios
of `trimtab_strategies.simulation`, which takes about half a minute; `proposals` draws the states of a proposal;
`metrics` lists what the operator measures of itself; `side-by-side` and its drawing show what
`benchmarks/side_by_side.py` left in docs/data. With --check nothing is written, and the exit code is 1 when a page on
disk differs from what would be written.
"""  # noqa: INP001 - a script

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import board_page
import comparison_page
import metrics_page
import proposals_page
import reference_page
import runbooks_page
import side_by_side_page

DOCS = Path(__file__).parent

PAGES: Mapping[str, Callable[[], str]] = {
    "strategies": reference_page.page,
    "comparison": comparison_page.page,
    "proposals": proposals_page.page,
    "metrics": metrics_page.page,
    "board": board_page.page,
    "board.json": board_page.board,
    "runbooks/README": runbooks_page.page,
    "side-by-side": side_by_side_page.page,
    "side-by-side.svg": side_by_side_page.drawing,
}
"""Name of each page's file, without `.md`, or of a drawing's, and what makes its text."""


def main(arguments: list[str] | None = None) -> int:
    """Write or check the named pages, all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"one of {', '.join(PAGES)}; default all")
    parser.add_argument("--check", action="store_true", help="only say whether the pages are up to date")
    given = parser.parse_args(arguments)
    if unknown := set(given.pages) - set(PAGES):
        parser.error(f"no such page: {', '.join(sorted(unknown))}; use {', '.join(PAGES)}")
    made = {name: make() for name, make in PAGES.items() if name in (given.pages or PAGES)}
    return check(made) if given.check else write(made)


def write(made: Mapping[str, str]) -> int:
    """Write the pages."""
    for name, text in made.items():
        _file(name).write_text(text)
        sys.stdout.write(f"wrote docs/{_file(name).name}\n")
    return 0


def check(made: Mapping[str, str]) -> int:
    """1 if a page on disk is another; its name is told."""
    stale = [name for name, text in made.items() if _on_disk(name) != text]
    for name in stale:
        sys.stderr.write(f"docs/{_file(name).name} is out of date: run make docs\n")
    return 1 if stale else 0


def _file(name: str) -> Path:
    if name == "board.json":  # the chart can only bring what is below it
        return DOCS.parent / "charts" / "trimtab" / "files" / name
    return DOCS / (name if Path(name).suffix else f"{name}.md")


def _on_disk(name: str) -> str:
    path = _file(name)
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
