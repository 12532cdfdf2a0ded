"""The pages of metrics and of alerts."""

from __future__ import annotations

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
