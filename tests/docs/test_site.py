"""The site builds without a warning, asks no other host for anything, and shows every page."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from doc_blocks import prose

pytestmark = pytest.mark.slow  # it builds the site

ROOT = Path(__file__).parents[2]
DOCS = list(ROOT.glob("docs/**/*.md"))
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


def tables(page: Path) -> list[str]:
    return re.findall(r"<table>.*?</table>", page.read_text(), re.DOTALL)


def words(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html)).strip()


@pytest.mark.parametrize("name", ["comparison", "strategies", "reference/cli", "metrics"])
def test_a_cell_names_its_column_so_that_a_phone_shows_a_row_as_a_block(site: Path, name: str) -> None:
    found = tables(site / f"{name}.html")

    assert found
    for table in found:
        columns = [words(head) for head in re.findall(r"<th\b[^>]*>(.*?)</th>", table, re.DOTALL)]
        told = ["", *columns[1:]] if len(columns) > 2 else [""] * len(columns)
        for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL):
            if "<td" in row:
                assert [unescape(label) for label in re.findall(r'<td data-label="([^"]*)"', row)] == told


def test_a_narrow_screen_hides_heads_and_shows_the_names_of_columns(site: Path) -> None:
    style = (site / "assets" / "site.css").read_text().partition("@media screen and (max-width: 599px)")[2]

    assert re.search(r"thead \{ display: none; \}", style)
    assert 'content: attr(data-label) ": "' in style
    assert 'href="assets/site.css"' in (site / "comparison.html").read_text()


def test_a_page_with_a_wide_table_has_no_column_of_contents(site: Path) -> None:
    def contents(name: str) -> bool:
        return bool(
            re.search(r'class="md-sidebar md-sidebar--secondary"[^>]*data-md-type="toc"(?![^>]*hidden)', page(name))
        )

    def page(name: str) -> str:
        return (site / f"{name}.html").read_text()

    def widest(name: str) -> int:
        return max(table.count("<th") for table in tables(site / f"{name}.html"))

    assert widest("comparison") >= 7
    assert not contents("comparison")
    assert widest("lifecycle") < 7
    assert contents("lifecycle")


def test_the_comparison_begins_with_what_it_comes_to() -> None:
    assert re.findall(r"(?m)^## (.*)", (ROOT / "docs" / "comparison.md").read_text())[0] == "In short"


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
