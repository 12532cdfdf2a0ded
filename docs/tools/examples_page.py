"""The page of examples: each file of examples/ with its first comment, whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from page_text import wrapped

EXAMPLES = Path(__file__).parents[2] / "examples"

_HEAD = """\
# Examples

<!-- made by docs/tools/generate.py from examples/: `make docs` -->

From the least a policy takes to what large clusters need. The API server of the tests accepts each as it stands. Change
`podLabels` and the URL of Prometheus; a policy without `mode` balances nothing.
"""


def page() -> str:
    """The whole page."""
    files = sorted(EXAMPLES.glob("*.yaml"))
    rows = [f"| [{_number(file)}](#{_title(file)}) | {_about(file)} |" for file in files]
    parts = [_HEAD, "| | what it shows |", "|---|---|", *rows, "", *(_section(file) for file in files)]
    return "\n".join(parts).rstrip() + "\n"


def _number(file: Path) -> str:
    return _title(file).partition("-")[0]


def _title(file: Path) -> str:
    return file.stem


def _section(file: Path) -> str:
    body = "\n".join(list(_body(file))).strip()
    return f"## {_title(file)}\n\n{wrapped(_about(file))}\n\n```yaml\n{body}\n```\n"


def _about(file: Path) -> str:
    """The comment that the file begins with, as a sentence."""
    lines = [line.lstrip("# ") for line in takewhile(_comment, file.read_text().splitlines())]
    return " ".join(lines).replace("|", "\\|")


def _body(file: Path) -> Iterator[str]:
    lines = file.read_text().splitlines()
    return iter(lines[len(list(takewhile(_comment, lines))) :])


def _comment(line: str) -> bool:
    return re.match(r"#", line) is not None
