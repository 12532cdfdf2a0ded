"""Reads code blocks, links and commands from Markdown pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NOT_RUN = "<!-- not run:"
"""Start of the comment above a block whose commands the tests leave out; readers do not see it."""

_FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<language>[\w-]*)[^\n]*$")
_SPAN = re.compile(r"`([^`\n]*)`")
_SHELLS = ("sh", "bash", "shell", "console")


@dataclass(frozen=True, slots=True)
class Block:
    """A code block. line: number of its first line in the page. run: whether tests run its commands."""

    page: Path
    line: int
    language: str
    text: str
    run: bool

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands of a block, each with its continued lines; in `console` blocks, those after a prompt."""
        if self.language not in _SHELLS:
            return ()
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))


def blocks(page: Path) -> Iterator[Block]:
    """The code blocks of a page, in order."""
    lines = page.read_text().splitlines()
    at = 0
    while at < len(lines):
        begin = _FENCE.match(lines[at])
        if begin is None:
            at += 1
            continue
        end = next(n for n in range(at + 1, len(lines)) if lines[n].strip() == begin["mark"])
        inside = [line.removeprefix(begin["indent"]) for line in lines[at + 1 : end]]
        run = not _above(lines, at).startswith(NOT_RUN)
        yield Block(page, at + 2, begin["language"], "\n".join(inside), run)
        at = end + 1


def prose(page: Path) -> str:
    """A page without code blocks and code spans."""
    return _SPAN.sub("", _without_blocks(page))


def spans(page: Path) -> list[str]:
    """The code spans in a page's sentences."""
    return _SPAN.findall(_without_blocks(page))


def _without_blocks(page: Path) -> str:
    text = page.read_text()
    for block in blocks(page):
        text = text.replace(block.text, "") if block.text.strip() else text
    return text


def _above(lines: list[str], at: int) -> str:
    """The first line of the paragraph above line `at`."""
    while at > 0 and not lines[at - 1].strip():
        at -= 1
    while at > 0 and lines[at - 1].strip():
        at -= 1
    return lines[at]
