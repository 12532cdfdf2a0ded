"""Pictures that the pages show are there, are drawn by a target of the Makefile, and are the same on every machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
DOCS = list(ROOT.glob("docs/**/*.md"))
PAGES = sorted({*ROOT.glob("*.md"), *DOCS, *ROOT.glob("image/*.md"), *ROOT.glob("charts/*/*.md")})
DRAWINGS = sorted({*ROOT.glob("docs/*.svg"), *ROOT.glob("docs/explanation/*.svg")})
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
"""A picture in Markdown: what it shows in words, and its file."""


def shown() -> dict[Path, set[Path]]:
    """The pictures, each with the pages that show it."""
    found: dict[Path, set[Path]] = {}
    for page in PAGES:
        for _, target in SHOWN.findall(page.read_text()):
            found.setdefault((page.parent / target).resolve(), set()).add(page)
    return found


def generate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(ROOT / "docs" / "tools" / "generate.py"), *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def test_every_picture_that_a_page_shows_is_there_and_is_told_in_words() -> None:
    pictures = shown()

    assert len(pictures) > 10
    assert [str(picture) for picture in pictures if not picture.exists()] == []
    assert [page.name for page in PAGES for words, _ in SHOWN.findall(page.read_text()) if not words] == []


def test_every_picture_of_a_terminal_is_shown_somewhere() -> None:
    assert [picture.name for picture in IMAGES.iterdir() if picture not in shown()] == []


@pytest.mark.slow
@pytest.mark.long
def test_the_target_draws_each_of_them_and_the_same_on_every_machine(tmp_path: Path) -> None:
    """The terminal, the time zone and NO_COLOR make no difference."""
    makefile = (ROOT / "Makefile").read_text()
    (line,) = re.findall(r"^screenshots:.*\n\t.*generate.py (\S+)$", makefile, re.MULTILINE)

    checked = generate("--check", line, TZ="Asia/Tokyo", COLUMNS="40", NO_COLOR="1", TERM="dumb", HOME=str(tmp_path))

    assert checked.returncode == 0, checked.stderr
    drawn = subprocess.run(
        [sys.executable, "-c", "import generate; print(*generate.inside('images/'))"],
        cwd=ROOT / "docs" / "tools", capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert sorted(drawn) == sorted(f"images/{picture.name}" for picture in IMAGES.iterdir())


@pytest.mark.parametrize("picture", sorted(IMAGES.glob("*.svg")), ids=lambda picture: picture.name)
def test_a_picture_is_small_says_what_it_shows_and_asks_no_other_host(picture: Path) -> None:
    text = picture.read_text()

    title = ET.fromstring(text).find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.text
    assert len(text) < 40_000
    assert re.findall(r"(?:https?:)?//[^\s\"<]+", text.replace("http://www.w3.org/2000/svg", "")) == []


@pytest.mark.parametrize("picture", DRAWINGS, ids=lambda picture: picture.name)
def test_letters_of_a_drawing_can_be_read_on_a_phone(picture: Path) -> None:
    """At least nine pixels high where a page is 358 pixels wide, as a phone of 390 shows it."""
    text = picture.read_text()
    width = float(re.findall(r'<svg [^>]*width="(\d+)"', text)[0])

    letters = [float(size) * min(1, 358 / width) for size in re.findall(r'font-size="(\d+)"', text)]
    assert min(letters) >= 9
