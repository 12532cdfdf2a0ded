"""The list of runbooks, docs/runbooks/README.md: every alert of charts/trimtab/files/alerts.yaml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).parents[2] / "charts" / "trimtab" / "files" / "alerts.yaml"

_HEAD = """\
# Alerts and what to do about them

<!-- made by docs/tools/generate.py from charts/trimtab/files/alerts.yaml; `make docs` -->

The rules are in [alerts.yaml](../../charts/trimtab/files/alerts.yaml): the chart makes a PrometheusRule of them, or add
the file to Prometheus' `rule_files`. *critical* is for a pager at once, *warning* for today, *info* for who
approves proposals. The job that scrapes Trimtab must put the label `namespace` on its targets, as ServiceMonitors do.

| alert | severity | after | what it says |
|---|---|---|---|
"""


def page() -> str:
    """The page."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return _HEAD + "".join(_line(rule) for group in groups for rule in group["rules"])


def _line(rule: dict[str, Any]) -> str:
    name, after = rule["alert"], rule.get("for", "at once")
    return (
        f"| [{name}]({name}.md) | {rule['labels']['severity']} | {after} | {_said(rule['annotations']['summary'])} |\n"
    )


def _said(summary: str) -> str:
    """A summary as a person reads it, without the template's code."""
    whole = re.sub(r"\{\{ with .*?\{\{ end \}\}", "", summary)
    spoken = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: found[1].upper(), whole)
    return re.sub(r"\{\{ \$value.*?\}\}", "N", spoken)
