"""Output of `trimtab observe`: tables, or data."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml
from rich.console import Console
from rich.text import Text

from trimtab_operator.cli.common import iso, length, written
from trimtab_operator.cli.tables import Grid, print_grid
from trimtab_operator.observe.limits import limit_lines
from trimtab_strategies.model import RESOURCES, TRAFFIC, ClusterLoad, DataQuality, counted
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.params import rounded
from trimtab_strategies.usage import measured_percent

_HEADINGS = ("CPU", "Memory", "Direct", "Net in", "Net out")
_FLOW = ("Msg/s in", "Msg/s out", "MB/s in", "MB/s out")
_SPARE = ("Direct", "Age", "Sessions", "Msg/s out", "Net in", "Net out", "Msg/s in")
"""Columns that a narrow terminal leaves out, in this order."""
_NUMBERS = frozenset({*_HEADINGS, *_FLOW, "Bundles", "Topics", "Sessions", "Age"})
_MEGA = 1e6
_HOT = 80.0
"""Percent from which a number is highlighted."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Load to show. of: policy or URL. now: the current time (epoch seconds)."""

    of: str
    load: ClusterLoad
    now: float


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over g groups of bundles.

    bundles: (g,) number of bundles. unknown: (g,) number of bundles with unknown load; `traffic` leaves them out.
    topics: (g,) number of topics. traffic: (g, 4) columns `TRAFFIC`, from the short-term averages.
    """

    bundles: IntArray
    unknown: IntArray
    topics: FloatArray
    traffic: FloatArray


def by_namespace(load: ClusterLoad) -> Sums:
    """Sums by namespace, rows as in `ClusterLoad.namespaces`."""
    return _sums(load, load.bundles.namespace, len(load.namespaces))


def by_broker(load: ClusterLoad) -> Sums:
    """Sums by owner; they may differ from the traffic that a broker reports itself."""
    return _sums(load, load.bundles.owner, len(load.brokers))


def _sums(load: ClusterLoad, group: IntArray, count: int) -> Sums:
    """Sums by group. group: (m,) the group of each bundle, -1 for none."""
    rows = np.flatnonzero(group >= 0)
    short, groups = load.bundles.short[rows], group[rows]
    unknown: BoolArray = np.asarray(np.isnan(short).any(axis=1))
    columns = np.where(unknown[:, np.newaxis], 0.0, short).T
    return Sums(
        bundles=np.bincount(groups, minlength=count),
        unknown=np.bincount(groups[unknown], minlength=count),
        topics=np.bincount(groups, np.nan_to_num(load.bundles.topics[rows]), count).astype(np.float64),
        traffic=np.stack([np.bincount(groups, columns[k], count) for k in range(len(TRAFFIC))], axis=1),
    )


def show(console: Console, shown: Shown, output: str, top: int, *, lines: bool) -> None:
    """Print the load as ``table``, ``json`` or ``yaml``, with the `top` hottest bundles and topics.

    lines: print one line of JSON or one YAML document, for a program that reads one snapshot after the other.
    """
    if output == "json":
        print(json.dumps(as_data(shown, top), indent=None if lines else 2), flush=True)
    elif output == "yaml":
        head = "---\n" if lines else ""
        print(head + yaml.safe_dump(as_data(shown, top), sort_keys=False, allow_unicode=True), end="", flush=True)
    else:
        print_tables(console, shown, top)


def as_data(shown: Shown, top: int) -> dict[str, Any]:
    """Plain data. Usage in percent of the limit, rates in msg/s and bytes/s, ages in seconds; null if unknown."""
    load = shown.load
    usage = usage_percent(load)
    carried, spaces = by_broker(load), by_namespace(load)
    brokers = [
        {
            "broker": name,
            "trusted": bool(load.brokers.trusted[row]),
            "doubt": _doubt(load.quality, name),
            "ready": bool(load.brokers.ready[row]),
            "schedulable": bool(load.brokers.schedulable[row]),
            "age": rounded(load.brokers.age[row], 3),
            "limits": {key: str(origin) for key, origin in load.quality.limits.get(name, {}).items()},
            "usage": {key: rounded(usage[row, k], 3) for k, key in enumerate(RESOURCES)},
            **_traffic(load.brokers.traffic[row]),
            "bundles": int(carried.bundles[row]),
            "ofBundles": _sum(carried, row),
        }
        for row, name in enumerate(load.brokers.names)
    ]
    return {
        "of": shown.of,
        "time": iso(load.now),
        "brokers": brokers,
        "namespaces": [_namespace(load, spaces, int(row)) for row in hottest(spaces.traffic, top)],
        "bundles": [_bundle(load, int(row)) for row in hottest(load.bundles.short, top)],
        "topics": [_topic(load, int(row)) for row in hottest(load.topics.traffic, top)],
        "quality": _quality(load.quality),
    }


def _doubt(quality: DataQuality, broker: str) -> dict[str, str] | None:
    doubt = quality.doubts.get(broker)
    return None if doubt is None else {"reason": str(doubt.reason), "text": doubt.text}


def _traffic(row: FloatArray) -> dict[str, float | None]:
    return {name: rounded(value, 3) for name, value in zip(TRAFFIC, row, strict=True)}


def _owner(load: ClusterLoad, bundle: int) -> str:
    row = int(load.bundles.owner[bundle])
    return load.brokers.names[row] if row >= 0 else ""


def _bundle(load: ClusterLoad, row: int) -> dict[str, Any]:
    bundles = load.bundles
    return {
        "bundle": bundles.names[row],
        "broker": _owner(load, row),
        **_traffic(bundles.short[row]),
        "topics": rounded(bundles.topics[row], 3),
        "sessions": rounded(bundles.sessions[row], 3),
    }


def _sum(sums: Sums, row: int) -> dict[str, Any]:
    return {"topics": int(sums.topics[row]), **_traffic(sums.traffic[row]), "unknownBundles": int(sums.unknown[row])}


def _namespace(load: ClusterLoad, sums: Sums, row: int) -> dict[str, Any]:
    return {"namespace": load.namespaces[row], "bundles": int(sums.bundles[row]), **_sum(sums, row)}


def _topic(load: ClusterLoad, row: int) -> dict[str, Any]:
    bundle = int(load.topics.bundle[row])
    return {"topic": load.topics.names[row], "bundle": load.bundles.names[bundle], **_traffic(load.topics.traffic[row])}


def _quality(quality: DataQuality) -> dict[str, Any]:
    return {
        "partial": quality.partial,
        "dropped": dict(sorted(quality.dropped.items())),
        "missingBrokers": quality.missing_brokers,
        "missingBundles": quality.missing_bundles,
        "failed": [{"part": part, "error": error} for part, error in quality.failed],
        "warnings": list(quality.warnings),
        "notes": list(quality.notes),
    }


def usage_percent(load: ClusterLoad) -> FloatArray:
    """(n, 5) percent of the limit, NaN if usage or limit is unknown."""
    return measured_percent(load.brokers.usage, load.brokers.limit)


def hottest(traffic: FloatArray, top: int) -> IntArray:
    """At most `top` rows with the highest throughput (in plus out), the hottest first, without unknown ones."""
    throughput = traffic[:, 2] + traffic[:, 3]
    order = np.argsort(-throughput, kind="stable")
    return order[: int(np.isfinite(throughput).sum())][:top]


def print_tables(console: Console, shown: Shown, top: int) -> None:
    """Print time and trust, then brokers, busy namespaces, hot bundles and topics, and problems of the data."""
    load = shown.load
    console.print(Text(f"{shown.of} at {written(load.now)} UTC, {length(max(0.0, shown.now - load.now))} ago"))
    console.print(Text(_summary(load)))
    print_grid(console, _brokers_grid(load))
    spaces = by_namespace(load)
    if len(rows := hottest(spaces.traffic, top)):
        print_grid(console, _namespaces_grid(load, spaces, rows))
    if len(rows := hottest(load.bundles.short, top)):
        print_grid(console, _bundles_grid(load, rows))
    if len(rows := hottest(load.topics.traffic, top)):
        print_grid(console, _topics_grid(load, rows))
    for line in limit_lines(load.quality):
        console.print(Text(line, style="dim"), soft_wrap=True)
    for line in quality_lines(load.quality):
        console.print(Text(line, style="yellow"), soft_wrap=True)


def _summary(load: ClusterLoad) -> str:
    trusted = load.brokers.trusted
    cpu = usage_percent(load)[trusted, 0]
    known = cpu[np.isfinite(cpu)]
    spread = f"; their CPU {known.min():.0f} % to {known.max():.0f} %" if known.size else ""
    return f"{int(trusted.sum())} of {len(trusted)} brokers are trusted{spread}; {len(load.bundles):,} bundles"


def _brokers_grid(load: ClusterLoad) -> Grid:
    usage, counts = usage_percent(load), by_broker(load).bundles
    rows: list[tuple[str | Text, ...]] = [
        (
            name,
            _belief(load, row),
            *(_percent(value) for value in usage[row]),
            *_rates(load.brokers.traffic[row]),
            f"{counts[row]:,}",
            length(age) if math.isfinite(age := load.brokers.age[row]) else "never",
        )
        for row, name in enumerate(load.brokers.names)
    ]
    return Grid("Brokers", ("Broker", "Trusted", *_HEADINGS, *_FLOW, "Bundles", "Age"), rows, _NUMBERS, _SPARE)


def _belief(load: ClusterLoad, row: int) -> Text:
    if not load.brokers.ready[row]:
        return Text("not ready", style="red")
    return Text("yes") if load.brokers.trusted[row] else Text("no", style="red")


def _percent(value: float) -> Text:
    if not math.isfinite(value):
        return Text("-", style="dim")
    return Text(f"{value:.1f} %", style="bold red" if value >= _HOT else "")


def _rates(traffic: FloatArray) -> tuple[str, ...]:
    values = (*traffic[:2], *(traffic[2:] / _MEGA))
    digits = (0, 0, 2, 2)
    known = map(math.isfinite, values)
    return tuple(f"{v:,.{d}f}" if there else "-" for v, d, there in zip(values, digits, known, strict=True))


def _namespaces_grid(load: ClusterLoad, sums: Sums, rows: IntArray) -> Grid:
    title = f"Busiest namespaces ({len(rows)} of {len(load.namespaces):,})"
    cells = [
        (load.namespaces[row], *_rates(sums.traffic[row]), f"{sums.bundles[row]:,}", f"{sums.topics[row]:,.0f}")
        for row in rows
    ]
    return Grid(title, ("Namespace", *_FLOW, "Bundles", "Topics"), cells, _NUMBERS, _SPARE)


def _bundles_grid(load: ClusterLoad, rows: IntArray) -> Grid:
    title = f"Hottest bundles ({len(rows)} of {len(load.bundles):,})"
    bundles = load.bundles
    cells = [
        (
            bundles.names[row],
            _owner(load, row) or "(no owner)",
            *_rates(bundles.short[row]),
            *(f"{n:,.0f}" if math.isfinite(n) else "-" for n in (bundles.topics[row], bundles.sessions[row])),
        )
        for row in rows
    ]
    return Grid(title, ("Bundle", "Broker", *_FLOW, "Topics", "Sessions"), cells, _NUMBERS, _SPARE)


def _topics_grid(load: ClusterLoad, rows: IntArray) -> Grid:
    title = f"Hottest topics ({len(rows)} of {len(load.topics):,})"
    cells = [
        (
            load.topics.names[row],
            load.bundles.names[load.topics.bundle[row]].rpartition("/")[2],
            *_rates(load.topics.traffic[row]),
        )
        for row in rows
    ]
    return Grid(title, ("Topic", "Bundle", *_FLOW), cells, _NUMBERS, _SPARE)


_USED = "AboveLimit"
"""The cause in `DataQuality.dropped` that counts values which are used all the same."""


def quality_lines(quality: DataQuality) -> list[str]:
    """A line for each problem of the data."""
    counts = dict(quality.dropped)
    above = counts.pop(_USED, 0)
    dropped = ", ".join(f"{count:,} {cause}" for cause, count in sorted(counts.items()))
    missing = {"broker": quality.missing_brokers, "bundle": quality.missing_bundles}
    return [
        *([f"samples not used: {dropped}"] if dropped else []),
        *([f"used, although above the limit: {counted(above, 'value')} (trust.aboveLimit)"] if above else []),
        *(f"{counted(count, what)} not measured" for what, count in missing.items() if count),
        *(f"no answer for {part}: {error}" for part, error in quality.failed),
        *(f"the source warns: {text}" for text in quality.warnings),
        *(f"not trusted: {broker}: {doubt.reason}, {doubt.text}" for broker, doubt in quality.doubts.items()),
        *(f"note: {text}" for text in quality.notes),
    ]
