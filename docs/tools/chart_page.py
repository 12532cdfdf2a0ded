"""The text of docs/chart.md and of the chart's README.md: written by hand but for the tables of values and of ways."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_ROOT = Path(__file__).parents[2]
_CHART = _ROOT / "charts" / "trimtab"
_WAYS = _ROOT / "tests" / "chart" / "values"
_TEMPLATES = Path(__file__).parents[1] / "templates"
_LINE = re.compile(r"(?P<indent> *)(?P<key>[\w]+):(?: (?P<rest>.*))?")


def page() -> str:
    """docs/chart.md."""
    return _filled("chart.md")


def readme() -> str:
    """charts/trimtab/README.md."""
    return _filled("chart-readme.md")


def _filled(template: str) -> str:
    text = (_TEMPLATES / template).read_text()
    chart = yaml.safe_load((_CHART / "Chart.yaml").read_text())
    for name, made in {"VALUES": values(), "WAYS": ways(), "VERSION": chart["version"]}.items():
        text = text.replace(f"@{name}@", made)
    return text


def values() -> str:
    """The table of all values: each has a line that begins with ``# --`` above it in values.yaml."""
    return "| value | default | what it is |\n|---|---|---|\n" + "\n".join(_rows())


def _rows() -> Iterator[str]:
    known: dict[str, Any] = yaml.safe_load((_CHART / "values.yaml").read_text())
    parents: list[str] = []
    said = ""
    for line in (_CHART / "values.yaml").read_text().splitlines():
        text = line.strip()
        if text.startswith("# -- "):
            said = text.removeprefix("# -- ")
        elif found := _LINE.fullmatch(line):
            path = [*parents[: len(found["indent"]) // 2], found["key"]]
            if said:
                yield f"| `{'.'.join(path)}` | `{_shown(known, path)}` | {said.replace('|', chr(92) + '|')} |"
                said = ""
            parents = path


def _shown(known: Any, path: list[str]) -> str:
    for key in path:
        known = known[key]
    return json.dumps(known)


def ways() -> str:
    """The table of ways to install, each a file of values that the tests put before a real API server."""
    rows = []
    for file in sorted(_WAYS.glob("*.yaml")):
        first, _, rest = file.read_text().partition("\n")
        rows.append(f"### {first.removeprefix('# ')}\n")
        rows.append(f"```yaml\n{rest.strip()}\n```\n" if rest.strip() else "Nothing but the image.\n")
    return "\n".join(rows)
