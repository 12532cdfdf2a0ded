"""The result of a backtest as one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from trimtab_lab.backtest.charts import HeatMap, load_chart, range_chart, sweep_chart
from trimtab_lab.backtest.players import Players
from trimtab_lab.backtest.replay import HistoryReplay
from trimtab_lab.backtest.report import BacktestReport
from trimtab_operator.cli.common import written

_STYLE = """\
:root { color-scheme: light dark; --text: #1f2328; --soft: #59636e; --rule: #d1d9e0; --page: #fff; --bad: #cf222e;
  --good: #1a7f37; --p0: #0969da; --p1: #8b949e; --p2: #d29922; --p3: #8250df; --p4: #1a7f37; --p5: #bf3989 }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --soft: #9198a1; --rule: #3d444d; --page: #0d1117;
  --bad: #ff7b72; --good: #3fb950; --p0: #58a6ff; --p3: #bc8cff } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); margin: 2rem auto;
  max-width: 62rem; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem } p { margin: .4rem 0 }
.soft { color: var(--soft) } .bad { color: var(--bad) } .good { color: var(--good) } .wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } caption { text-align: left; color: var(--soft) }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--rule) }
th:first-child, td:first-child { text-align: left; white-space: nowrap } svg { width: 100%; height: auto }
.heat { display: inline-table; margin: 0 2rem 1rem 0 }
.heat td { background: color-mix(in srgb, var(--p0) calc(var(--share, 0) * 55%), transparent) }
svg text { font: 12px system-ui, sans-serif; fill: var(--text) } svg .axis { fill: var(--soft) }
.rule { stroke: var(--rule); stroke-width: .6 } .line { fill: none; stroke-width: 1.4; stroke: var(--line, var(--p0)) }
.hot { stroke: var(--bad); stroke-dasharray: 4 4 } .worst { fill: var(--p2); opacity: .16 } .moves { fill: var(--p3) }
.range { fill: var(--p0); opacity: .15 } .half { fill: var(--p0); opacity: .3 } .median { stroke-width: 2 }
.front { fill: none; stroke: var(--p4); stroke-width: 1.2; stroke-dasharray: 5 4 } .dot.best { fill: var(--p4) }
path.live { stroke: var(--p1) } svg text.live { fill: var(--p1) }
.dot.other { fill: var(--p1) } .dot.live { fill: var(--bad) }
svg .key { font-weight: 600 }
"""
_COLORS = (0, 2, 3, 4, 5)
_STYLE += "".join(
    f"path.p{k} {{ stroke: var(--p{color}) }} svg text.p{k} {{ fill: var(--p{color}) }}\n"
    for k, color in enumerate(_COLORS)
)

_CHARTS = 5
"""Maximum number of replays with a chart of load. One of them is what really happened."""
_SPACES = 20
_SWEPT = 2  # fields of a heat map


def html_report(report: BacktestReport, players: Players) -> str:
    """The report as one HTML page."""
    title = f"Trimtab backtest: {report.recording}"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    body = "\n".join(_body(report, players))
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>\n{_STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def _body(report: BacktestReport, players: Players) -> Iterator[str]:
    yield f"<h1>Trimtab backtest</h1><p class='soft'>{escape(report.title)}</p>"
    yield from (f"<p>{escape(line)}</p>" for line in report.lines)
    yield from (f"<p class='bad'>Not met: {escape(line)}</p>" for line in report.failed)
    yield f'<div class="wide">{_table(report.grid.headings, report.grid.rows)}</div>'
    yield from _sweep(report, players)
    drawn = _drawn(report, players)
    traces = {one.name: one.trace for one in drawn}
    yield "<h2>Points between the busiest and the idlest broker</h2>"
    yield range_chart(traces, report.begin, report.end)
    measured = (usage for one in drawn for usage in one.trace.usage if np.isfinite(usage).any())
    highest = max(map(float, map(np.nanmax, measured)), default=100.0)
    found = {result.name: result for result in report.results}
    for one in drawn:
        figures = found[one.name].figures
        hour = "" if figures.worst != figures.worst else f" The worst hour began {written(figures.worst_at)}."
        yield f"<h2>{escape(one.name)}: usage of the brokers, and moves</h2>"
        yield f"<p class='soft'>Busiest resource of each broker, percent of its limit.{hour}</p>"
        yield load_chart(
            one.trace,
            report.begin,
            report.end,
            highest=max(highest, 100.0),
            worst_at=figures.worst_at,
        )
    yield from _namespaces(report)


def _drawn(report: BacktestReport, players: Players) -> list[HistoryReplay]:
    """The replays that get a chart; the last is what really happened.

    Of a sweep, only variants that no other variant beats get a chart.
    """
    judged = [one for one in players.shown[:-1] if not report.front or one.name in report.front]
    return [*judged[: _CHARTS - 1], players.shown[-1]]


def _sweep(report: BacktestReport, players: Players) -> Iterator[str]:
    if not report.front:
        return
    figures = {one.name: one.figures for one in report.results[: len(players.judged)]}
    yield "<h2>Disconnected clients and remaining difference between the brokers, by variant</h2>"
    told = "Vertical axis: mean points between the brokers. Green: no other variant beats it. Red: live."
    yield f"<p class='soft'>{told}</p>"
    yield sweep_chart(figures, report.front, report.results[-1].figures)
    for what, heading in (("area", "mean points between the brokers"), ("moves", "moves"), ("cut", "clients cut, %")):
        if heat := heat_map({name: float(getattr(one, what)) for name, one in figures.items()}):
            yield heat.table(heading)


def heat_map(values: Mapping[str, float]) -> HeatMap | None:
    """The heat map of `values` by variant name (``price=200 worth=300``).

    None unless all names have the same two fields. None, too, if less than a quarter of the pairs of values was tried,
    or if no figure is known.
    """
    parts = {name: dict(part.partition("=")[::2] for part in name.split(" ")) for name in values}
    fields = list(next(iter(parts.values())))
    if len(fields) != _SWEPT or any(list(one) != fields for one in parts.values()):
        return None
    up, across = fields
    rows, columns = (list(dict.fromkeys(one[field] for one in parts.values())) for field in fields)
    if len(rows) * len(columns) > 4 * len(values):  # values drawn from ranges: most pairs were not tried
        return None
    cells = {(parts[name][up], parts[name][across]): value for name, value in values.items() if value == value}  # noqa: PLR0124
    return HeatMap(across, up, columns, rows, cells) if cells else None


def _namespaces(report: BacktestReport) -> Iterator[str]:
    first, live = report.results[0], report.results[-1]
    names = list(dict.fromkeys([*first.namespaces, *live.namespaces]))[:_SPACES]
    if not names:
        return
    yield f"<h2>Cost by namespace: {escape(first.name)}, and live</h2>"
    rows = []
    for name in names:
        both = [result.namespaces.get(name) for result in (first, live)]
        texts = [
            (f"{one.moves}", f"{one.clients:.0f}", f"{one.silent:.1f}") if one else ("0", "0", "0") for one in both
        ]
        rows.append((name, *(text for pair in zip(*texts, strict=True) for text in pair)))
    headings = ("namespace", "moves", "live", "clients cut", "live", "silent s", "live")
    yield f'<div class="wide">{_table(headings, rows)}</div>'


def _table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(one)}</th>" for one in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
