"""The Grafana board as JSON for import, and docs/board.md, which says what each panel means; both of board_rows.yaml.

A panel, and a row of them, is what the YAML has of it; the head of that file says what may be there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROWS: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parents[1] / "board_rows.yaml").read_text())
"""All of the board, from top to bottom."""

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
NAMESPACE = 'namespace=~"$namespace"'
POLICY = f'{NAMESPACE}, policy=~"$policy"'
WINDOW = "$__rate_interval"
TALL, FLAT, WIDE = 8, 4, 24

_HEAD = """\
# The Grafana board

<!-- made by docs/tools/generate.py from docs/board_rows.yaml; `make docs` -->

[board.json](../charts/trimtab/files/board.json) is a dashboard for Grafana 10 or newer: *Dashboards > New > Import*,
upload the file, choose the data source. The chart brings it as a ConfigMap with the label `grafana_dashboard: "1"`,
which Grafana's sidecar loads by itself. At the top one chooses the data source, namespaces and policies.

- The top row answers: is it balanced, is it acting, can its data be trusted. If all is green, nobody needs the rest.
- Prometheus must scrape `/metrics` of *every* replica, and put the labels `namespace` and `pod` on it, as with a
  ServiceMonitor.
- It shows the operator, and the brokers as the operator sees them: what brokers measure of themselves is on Pulsar's
  own boards.
- Alerts are in [runbooks](runbooks/README.md), metrics in [metrics](metrics.md).

Every query of the board, and of the alerts, is asked in the tests of a Prometheus that scraped a running operator
([tests/monitoring](../tests/monitoring)). To change a panel, edit
[board_rows.yaml](board_rows.yaml) and run `make docs`.
"""


def board() -> str:
    """The dashboard as JSON."""
    return json.dumps(_dashboard(), indent=1, ensure_ascii=False) + "\n"


def page() -> str:
    """The text of docs/board.md."""
    return _HEAD + "".join(f"\n{_section(row)}" for row in ROWS)


def _section(row: Mapping[str, Any]) -> str:
    closed = "\nClosed until somebody opens it.\n" if row.get("closed") else ""
    lines = [f"| {panel['title']} | {panel['says']} |" for panel in row["panels"]]
    return f"## {row['row']}\n{closed}\n| panel | what it says |\n|---|---|\n" + "\n".join(lines) + "\n"


def _dashboard() -> dict[str, Any]:
    return {
        "uid": "trimtab",
        "title": "Trimtab",
        "description": "Whether brokers are level, what Trimtab does about it, and how far it can be trusted.",
        "tags": ["trimtab", "pulsar"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "fiscalYearStartMonth": 0,
        "annotations": {"list": [_takeovers()]},
        "links": [],
        "templating": {"list": _variables()},
        "panels": list(_panels()),
    }


def _takeovers() -> dict[str, Any]:
    return {
        "name": "Takeovers",
        "datasource": SOURCE,
        "enable": True,
        "iconColor": "purple",
        "expr": f"changes(max(trimtab_leader_epoch{{{NAMESPACE}}})[1m:15s]) > 0",
        "titleFormat": "Another operator leads",
    }


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source", "hide": 0},
        _variable("namespace", "Namespace", "label_values(trimtab_build_info, namespace)"),
        _variable("policy", "Policy", f"label_values(trimtab_policy_state{{{NAMESPACE}}}, policy)"),
    ]


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    """Everything is chosen at first, also where targets carry no such label."""
    return {
        "name": name,
        "type": "query",
        "label": label,
        "datasource": SOURCE,
        "query": {"query": query, "refId": "values"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _panels() -> Iterator[dict[str, Any]]:
    """Rows, and the panels of open ones after them, from top to bottom."""
    number, top = 0, 0
    for row in ROWS:
        number += 1
        closed = bool(row.get("closed"))
        header = {
            "id": number,
            "type": "row",
            "title": row["row"],
            "collapsed": closed,
            "gridPos": {"x": 0, "y": top, "w": WIDE, "h": 1},
            "panels": list[dict[str, Any]](),
        }
        inside, bottom = _placed(row["panels"], number, top + 1)
        number += len(inside)
        if closed:
            header["panels"], inside, bottom = inside, [], top + 1
        yield header
        yield from inside
        top = bottom


def _placed(panels: list[dict[str, Any]], number: int, top: int) -> tuple[list[dict[str, Any]], int]:
    """The panels of a row from left to right, numbered from `number` + 1, and where the next row begins."""
    made, left, line = list[dict[str, Any]](), 0, 0
    for panel in panels:
        width, height = panel.get("width", 8), FLAT if _is_stat(panel) else TALL
        if left + width > WIDE:
            top, left, line = top + line, 0, 0
        place = {"x": left, "y": top, "w": width, "h": height}
        made.append({"id": number + len(made) + 1, "gridPos": place, **_panel(panel)})
        left, line = left + width, max(line, height)
    return made, top + line


def _is_stat(panel: Mapping[str, Any]) -> bool:
    return panel.get("kind") == "stat"


def _panel(panel: Mapping[str, Any]) -> dict[str, Any]:
    stat = _is_stat(panel)
    return {
        "title": panel["title"],
        "description": panel["says"],
        "type": "stat" if stat else "timeseries",
        "datasource": SOURCE,
        "targets": [_target(stat, at, *query) for at, query in enumerate(_queries(panel).items())],
        "fieldConfig": {
            "defaults": _as_stat(panel) if stat else _as_series(panel),
            "overrides": _colors() if panel.get("byName") else [],
        },
        "options": _stat(panel) if stat else _series(panel),
    }


def _queries(panel: Mapping[str, Any]) -> Mapping[str, str]:
    """PromQL by its legend."""
    if "quantiles" not in panel:
        return panel["show"]  # type: ignore[no-any-return]
    wanted = panel["quantiles"]
    by, window = wanted.get("by", ""), wanted.get("window", "%R")
    chosen, legend, labels = (
        ("%P" if by == "policy" else "%N", f"{{{{{by}}}}} ", f"{by}, le") if by else ("%N", "", "le")
    )
    counted = f"sum by ({labels}) (rate({wanted['of']}_bucket{{{chosen}}}[{window}]))"
    return {f"{legend}{name}": f"histogram_quantile({q}, {counted})" for name, q in (("median", 0.5), ("95 %", 0.95))}


def _target(stat: bool, at: int, legend: str, query: str) -> dict[str, Any]:  # noqa: FBT001 - a kind of panel
    return {
        "refId": chr(ord("A") + at),
        "datasource": SOURCE,
        "expr": query.replace("%P", POLICY).replace("%N", NAMESPACE).replace("%R", WINDOW),
        "legendFormat": legend,
        "instant": stat,
        "range": not stat,
    }


def _as_stat(panel: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "unit": panel.get("unit", "none"),
        "color": {"mode": "thresholds"},
        "thresholds": {"mode": "absolute", "steps": _steps(panel.get("steps", [[0, "blue"]]))},
        "mappings": _mappings(panel.get("words", {})),
        "noValue": "no data",
    }


def _as_series(panel: Mapping[str, Any]) -> dict[str, Any]:
    bars = panel.get("kind") == "bars"
    return {
        "unit": panel.get("unit", "none"),
        "color": {"mode": "palette-classic"},
        "mappings": [],
        **({} if panel.get("negative") else {"min": 0}),
        "custom": {
            "drawStyle": "bars" if bars else "line",
            "lineWidth": 0 if bars else 1,
            "fillOpacity": 70 if bars else 8,
            "stacking": {"mode": "normal" if bars else "none", "group": "A"},
            "showPoints": "never",
            "spanNulls": False,
        },
    }


def _steps(steps: list[list[Any]]) -> list[dict[str, Any]]:
    """The first colour counts from minus infinity, which JSON has no number for."""
    return [{"value": value if at else None, "color": color} for at, (value, color) in enumerate(steps)]


def _mappings(words: Mapping[float, list[str]]) -> list[dict[str, Any]]:
    options = {
        str(value): {"text": text, "color": color, "index": at}
        for at, (value, (text, color)) in enumerate(words.items())
    }
    return [{"type": "value", "options": options}] if options else []


def _colors() -> list[dict[str, Any]]:
    """States are in the legend. Green: it acts; orange: its data or objects keep it from that; red: see to it now."""
    colors = {
        "Acting|Ready|ProposalReady|Rebalancing": "green",
        "NoLoadData|OutDatedData|Untrusted|PartialData|SourceUnavailable": "orange",
        "InvalidPolicy|UnknownBroker|StoreNotSynced|NoBrokers": "orange",
        "MassFailure|InternalError|Contested|TwoHands|NotReady": "red",
    }
    return [
        {
            "matcher": {"id": "byRegexp", "options": f"/: ({words})$/"},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
        }
        for words, color in colors.items()
    ]


def _stat(panel: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "name" if panel.get("byName") else "auto",
    }


def _series(panel: Mapping[str, Any]) -> dict[str, Any]:
    calcs = ["sum"] if panel.get("kind") == "bars" else ["lastNotNull", "max"]
    return {
        "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": calcs},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
