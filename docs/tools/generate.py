"""Write the pages that are made from code: `python docs/tools/generate.py [--check] [PAGE...]`.

PAGE is a name of `PAGES`, or a folder such as `images/`. With --check nothing is written, and the exit code is 1 when a
page on disk differs from what would be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import algorithms_page
import calibration_page
import chart_page
import cli_page
import comparison_page
import monitoring_page
import reference_page
import resources_page
import scenarios_page
import screens_page
import side_by_side_page
import trim_page
import trim_pictures
import vocabulary_page

DOCS = Path(__file__).parents[1]

PAGES: Mapping[str, Callable[[], str]] = {
    "strategies": reference_page.page,
    "comparison": comparison_page.page,
    "comparison.csv": comparison_page.figures_file,
    "calibration": calibration_page.page,
    **{f"{name}.svg": drawing for name, drawing in calibration_page.DRAWINGS.items()},
    **{f"{name}.svg": draw for name, draw in comparison_page.DRAWINGS.items()},
    "side-by-side": side_by_side_page.page,
    "side-by-side.svg": side_by_side_page.drawing,
    "proposals": vocabulary_page.proposals,
    "chart": chart_page.page,
    "chart-readme": chart_page.readme,
    "metrics": monitoring_page.metrics,
    "runbooks/README": monitoring_page.runbooks,
    **{f"reference/{kind.lower()}": partial(resources_page.page, kind) for kind in resources_page.KINDS},
    "reference/cli": cli_page.page,
    "reference/reasons": vocabulary_page.reasons,
    "reference/scenarios": scenarios_page.page,
    "reference/scenario.schema.json": scenarios_page.schema,
    "explanation/algorithms": algorithms_page.page,
    **{f"explanation/{name}.svg": partial(algorithms_page.drawing, name) for name in algorithms_page.DRAWINGS},
    "explanation/trim": trim_page.page,
    **{f"explanation/{name}.svg": draw for name, draw in trim_pictures.PICTURES.items()},
    **{f"images/{name}.svg": partial(screens_page.drawing, name) for name in screens_page.SCREENS},
    "images/simulate.svg": scenarios_page.drawing,
}
"""Path below docs/ of each page (without `.md`) or drawing, and the function that makes its text."""


def main(arguments: list[str] | None = None) -> int:
    """Write or check the named pages, all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"one of {', '.join(PAGES)}; default all")
    parser.add_argument("--check", action="store_true", help="only say whether the pages are up to date")
    given = parser.parse_args(arguments)
    if unknown := [asked for asked in given.pages if not inside(asked)]:
        parser.error(f"no such page: {', '.join(unknown)}; use {', '.join(PAGES)}")
    wanted = [name for asked in given.pages for name in inside(asked)]
    made = {name: make() for name, make in PAGES.items() if name in wanted or not wanted}
    return check(made) if given.check else write(made)


def inside(asked: str) -> list[str]:
    """The page of that name, or all pages of that folder."""
    return [name for name in PAGES if name == asked or (asked.endswith("/") and name.startswith(asked))]


def write(made: Mapping[str, str]) -> int:
    for name, text in made.items():
        _file(name).write_text(text)
        sys.stdout.write(f"wrote {_file(name).relative_to(DOCS.parent)}\n")
    return 0


def check(made: Mapping[str, str]) -> int:
    """Exit code 1, with the names of the pages, if a page on disk differs."""
    stale = [name for name, text in made.items() if _on_disk(name) != text]
    for name in stale:
        sys.stderr.write(f"{_file(name).relative_to(DOCS.parent)} is out of date: run make docs\n")
    return 1 if stale else 0


def _file(name: str) -> Path:
    if name == "chart-readme":  # where Helm looks for it
        return DOCS.parent / "charts" / "trimtab" / "README.md"
    return DOCS / (name if Path(name).suffix else f"{name}.md")


def _on_disk(name: str) -> str:
    path = _file(name)
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
