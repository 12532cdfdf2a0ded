"""The site builds without a warning, asks no other host for anything, and shows every page."""

from __future__ import annotations

import os
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
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(where), *options]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


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


def test_files_outside_of_docs_are_pages_of_their_own(site: Path) -> None:
    reasons = site / "source/strategies/src/trimtab_strategies/model/reason.py.html"

    assert "class Reason" in re.sub(r"<[^>]+>", "", reasons.read_text())
    assert "source/strategies/src/trimtab_strategies/model/reason.py.html" in (site / "concepts.html").read_text()


def test_every_cell_of_a_table_of_the_site_names_its_column(site: Path) -> None:
    """On a phone a row is a block of `column: value`, so each cell has to know its column."""
    page = (site / "reference" / "balancingpolicy.html").read_text()

    assert '<td data-label="default"><code>DryRun</code></td>' in page
    assert "<td>" not in (site / "comparison.html").read_text()
    assert "data-label" in (site / "assets" / "site.css").read_text()


def test_long_names_in_tables_may_break_and_are_still_found(site: Path) -> None:
    name = "loadBalancerBrokerThresholdShedderPercentage"
    broken = "load<wbr>Balancer<wbr>Broker<wbr>Threshold<wbr>Shedder<wbr>Percentage"

    assert broken in (site / "strategies.html").read_text()
    assert name in (site / "search" / "search_index.json").read_text()


def test_a_page_with_a_wide_table_gives_it_the_room_of_the_contents(site: Path) -> None:
    hidden = re.compile(r'data-md-type="toc" hidden')

    assert hidden.search((site / "comparison.html").read_text())
    assert not hidden.search((site / "concepts.html").read_text())


def test_the_screenshot_of_a_terminal_scrolls_on_a_phone(site: Path) -> None:
    assert '<p class="terminal"><img' in (site / "tutorial" / "ten-minutes.html").read_text()
    assert ".terminal" in (site / "assets" / "site.css").read_text()


def test_a_broken_link_and_a_broken_anchor_fail_the_build(tmp_path: Path) -> None:
    """The same settings, with a page that leads nowhere."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# A\n\n[nowhere](nowhere.md)\n\n[no such part](#no-such-part)\n")
    settings = (ROOT / "mkdocs.yml").read_text()
    hookless = re.sub(r"(?ms)^(hooks|nav|not_in_nav|extra_css):.*?(?=^\S)|^nav:.*\Z", "", settings)
    (tmp_path / "mkdocs.yml").write_text(hookless)

    built = build(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))

    assert built.returncode != 0
    assert "nowhere.md" in built.stderr
    assert "no-such-part" in built.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    """In the repository, where pages are read too."""
    for target in re.findall(r"\]\((?!\w+:|#)([^)\s#]+)", prose(page)):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_item_of_a_list_is_indented_by_less_than_four(page: Path) -> None:
    """GitHub would take two or three for a list inside a list, the site would not."""
    assert re.findall(r"(?m)^ {1,3}(?:[-*]|\d+\.) .*", prose(page)) == []
