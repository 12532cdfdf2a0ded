"""The site builds without a warning, asks no other host for anything, and shows every page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from doc_blocks import prose

ROOT = Path(__file__).parents[2]
DOCS = [page for page in ROOT.glob("docs/**/*.md") if page.parent.name not in {"data", "templates"}]  # parts of others
PAGES = sorted({*ROOT.glob("*.md"), *DOCS, *ROOT.glob("tests/*/README.md")})
FETCHED = re.compile(
    r'<(?:script|img|iframe|source)\b[^>]*\bsrc="(\w+:)?//|<link\b[^>]*\bhref="(\w+:)?//|url\((\w+:)?//'
)
"""What a browser loads by itself from elsewhere; a link is followed by its reader alone."""


def build(where: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "properdocs", "build", "--strict", "--site-dir", str(where), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("site")
    built = build(where)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return where


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    """Fonts, scripts, styles and badges are the site's own."""
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]

    assert len(pages) > 50
    assert {page.name: found[0] for page in pages if (found := FETCHED.search(page.read_text()))} == {}


def test_every_page_of_docs_is_on_the_site_and_in_its_navigation(site: Path) -> None:
    shown = (site / "index.html").read_text() + (site / "explanation" / "index.html").read_text()

    for page in DOCS:
        inside = page.relative_to(ROOT / "docs")
        built = inside.with_name("index.html" if inside.name == "README.md" else f"{inside.stem}.html")
        assert (site / built).exists(), inside
    for kind in ("tutorial/ten-minutes", "how-to/index", "reference/index", "project/about-scope"):
        assert f"{kind}.html" in shown


def test_alerts_lead_to_pages_in_the_repository_and_on_the_site(site: Path) -> None:
    """With both of the suffixes that the chart's `alerts.runbookSuffix` speaks of."""
    rules = (ROOT / "charts" / "trimtab" / "files" / "alerts.yaml").read_text()
    names = re.findall(r"runbook_url: (\w+)\.md$", rules, re.MULTILINE)

    assert len(names) == rules.count("- alert: ")
    assert [name for name in names if not (ROOT / "docs" / "runbooks" / f"{name}.md").exists()] == []
    assert [name for name in names if not (site / "runbooks" / f"{name}.html").exists()] == []


def test_the_image_and_kind_are_in_the_navigation(site: Path) -> None:
    menu = (site / "how-to" / "index.html").read_text()

    assert '"../source/image/index.html"' in menu
    assert '"../source/examples/kind/index.html"' in menu


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    """In the repository, where pages are read too."""
    for target in re.findall(r"\]\((?!\w+:|#)([^)\s#]+)", prose(page)):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_item_of_a_list_is_indented_by_less_than_four(page: Path) -> None:
    """GitHub would take two or three for a list inside a list, the site would not."""
    assert re.findall(r"(?m)^ {1,3}(?:[-*]|\d+\.) .*", prose(page)) == []
