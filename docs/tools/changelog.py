"""Join the files of changelog.d/ into CHANGELOG.md: `changelog.py [--release VERSION --date YYYY-MM-DD]`.

Without options the script rewrites the section of unreleased changes. With `--release` it gives that section the
version and the date, and removes the files.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]

KINDS = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "removed": "Removed"}

COMING = "## 0.1.0, not yet released"
"""Heading of the changes since the last release."""

_SECTION = re.compile(rf"^{re.escape(COMING)}$.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


class FragmentError(ValueError):
    """A file of changelog.d/ has an unknown kind. The message names the file and the kinds."""


def fragments(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Kind, text and file of each change, in the order of the files' names. Raises `FragmentError`."""
    for path in sorted(folder.glob("*.md")):
        if path.name == "README.md":
            continue
        kind = path.stem.rpartition(".")[2]
        if kind not in KINDS:
            raise FragmentError(f"{path.name}: {kind!r} is not a kind of change: use <topic>.<{'|'.join(KINDS)}>.md")
        yield kind, " ".join(path.read_text().split()), path


def section(heading: str, folder: Path) -> str:
    """The section of all changes in `folder`, by kind."""
    found: Mapping[str, list[str]] = {kind: [] for kind in KINDS}
    for kind, text, _ in fragments(folder):
        found[kind].append(f"- {text}")
    parts = [f"### {KINDS[kind]}\n\n" + "\n".join(lines) for kind, lines in found.items() if lines]
    return "\n\n".join([heading, *parts]) + "\n"


def joined(changelog: str, written: str) -> str:
    """The changelog with `written` as its section of unreleased changes, before all versions."""
    if _SECTION.search(changelog):
        return _SECTION.sub(lambda _: f"{written}\n", changelog).rstrip() + "\n"
    head, mark, rest = changelog.partition("\n## ")
    return f"{head.rstrip()}\n\n{written}{mark}{rest}"


def main(arguments: list[str] | None = None) -> int:
    """Write CHANGELOG.md, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", metavar="VERSION", help="name the section after this version; remove the files")
    parser.add_argument("--date", metavar="YYYY-MM-DD", help="day of the release")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of CHANGELOG.md and changelog.d (this one)")
    given = parser.parse_args(arguments)
    if bool(given.release) != bool(given.date):
        parser.error("--release and --date go together")
    file, folder = given.root / "CHANGELOG.md", given.root / "changelog.d"
    heading = f"## {given.release}, {given.date}" if given.release else COMING
    try:
        file.write_text(joined(file.read_text(), section(heading, folder)))
    except FragmentError as error:
        sys.stderr.write(f"changelog: {error}\n")
        return 2
    for _, _, path in fragments(folder) if given.release else ():
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
