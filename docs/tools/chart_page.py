"""The ways to install in docs/chart.md, and the table of values in the chart's README.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml
from page_text import ROOT, filled, table

_CHART = ROOT / "charts" / "trimtab"
_WAYS = ROOT / "tests" / "chart" / "values"
_LINE = re.compile(r"(?P<indent> *)(?P<key>[\w]+):(?: (?P<rest>.*))?")


def page() -> str:
    """docs/chart.md."""
    version = yaml.safe_load((_CHART / "Chart.yaml").read_text())["version"]
    return filled("chart.md", WAYS=_ways(), VERSION=version)


def readme() -> str:
    """charts/trimtab/README.md."""
    return filled("../charts/trimtab/README.md", VALUES=table("value | default | what it is", _values()))


def _values() -> Iterator[tuple[str, str, str]]:
    """A row for each value of values.yaml that has a line with ``# --`` above it."""
    text = (_CHART / "values.yaml").read_text()
    known, parents, said = yaml.safe_load(text), list[str](), ""
    for line in text.splitlines():
        if line.strip().startswith("# -- "):
            said = line.strip().removeprefix("# -- ")
        elif found := _LINE.fullmatch(line):
            parents = [*parents[: len(found["indent"]) // 2], found["key"]]
            if said:
                yield f"`{'.'.join(parents)}`", f"`{_shown(known, parents)}`", said.replace("|", "\\|")
                said = ""


def _shown(known: Any, path: list[str]) -> str:
    for key in path:
        known = known[key]
    return json.dumps(known)


def _ways() -> str:
    """A row for each way to install: a values file that the tests install on a real API server."""
    files = sorted(_WAYS.glob("*.yaml"))
    rows = [(file.read_text().partition("\n")[0].removeprefix("# "), file) for file in files]
    return table("way | values", [(way, f"[{file.name}](../tests/chart/values/{file.name})") for way, file in rows])
