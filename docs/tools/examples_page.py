"""The page of examples: each file of examples/, complete, with its first comment as text."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from page_text import ROOT, filled, table, wrapped


def page() -> str:
    """docs/reference/examples.md."""
    files = sorted((ROOT / "examples").glob("*.yaml"))
    parts = {file.stem: _parts(file) for file in files}
    rows = [(f"[{name.partition('-')[0]}](#{name})", about) for name, (about, _) in parts.items()]
    sections = [f"## {name}\n\n{wrapped(about)}\n\n```yaml\n{body}\n```" for name, (about, body) in parts.items()]
    return filled("examples.md", OVERVIEW=table("| what it shows", rows), EXAMPLES="\n\n".join(sections))


def _parts(file: Path) -> tuple[str, str]:
    """The comment at the beginning of the file, as one paragraph, and the rest of the file."""
    lines = file.read_text().splitlines()
    comment = list(takewhile(lambda line: line.startswith("#"), lines))
    about = " ".join(line.lstrip("# ") for line in comment).replace("|", "\\|")
    return about, "\n".join(lines[len(comment) :]).strip()
