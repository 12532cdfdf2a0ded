"""The pages of metrics, of alerts and of the Grafana board."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml
from page_text import ROOT, filled, table

from trimtab_operator.telemetry.metrics import Metrics

FILES = ROOT / "charts" / "trimtab" / "files"


def metrics() -> str:
    """docs/metrics.md: every metric that the operator registers."""
    rows = [
        (f"`{metric.name}`", metric.type, ", ".join(f"`{label}`" for label in metric.labels) or "none", metric.text)
        for metric in sorted(Metrics().described)
    ]
    return filled("metrics.md", METRICS=table("metric | type | labels | what it is", rows))


def runbooks() -> str:
    """docs/runbooks/README.md: every alert of alerts.yaml."""
    groups = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    rows = [_alert(rule) for group in groups for rule in group["rules"]]
    return filled("runbooks/README.md", ALERTS=table("alert | severity | after | what it says", rows))


def _alert(rule: Mapping[str, Any]) -> tuple[str, ...]:
    name, after = rule["alert"], rule.get("for", "immediately")
    return f"[{name}]({name}.md)", rule["labels"]["severity"], after, _spoken(rule["annotations"]["summary"])


def _spoken(summary: str) -> str:
    """A summary without the template's code."""
    whole = re.sub(r"\{\{ with .*?\{\{ end \}\}", "", summary)
    labels = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: found[1].upper(), whole)
    return re.sub(r"\{\{ \$value.*?\}\}", "N", labels)


def board() -> str:
    """docs/board.md: what each panel of board.json means."""
    sections: dict[str, list[tuple[str, str]]] = {}
    title = ""
    for panel in json.loads((FILES / "board.json").read_text())["panels"]:
        if panel["type"] == "row":
            title = f"## {panel['title']}\n" + ("\nClosed at first.\n" if panel["collapsed"] else "")
            sections[title] = []
        shown = panel["panels"] if panel["type"] == "row" else [panel]
        sections[title] += [(each["title"], each["description"]) for each in shown]
    rows = [f"{title}\n{table('panel | what it says', panels)}\n" for title, panels in sections.items()]
    return filled("board.md", ROWS="\n".join(rows).rstrip())
