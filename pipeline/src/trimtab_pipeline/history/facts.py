"""Facts that come from Kubernetes objects and not from metrics. A backtest needs them besides the load.

A fact has a kind, a name and a value. It is written when it changes. If what it is about no longer exists, the value is
null. The first record of each hour, and of each process, has all facts. If a record has all facts of a kind, a row of
the kind `COMPLETE` names that kind. An object of that kind without a fact in the record no longer exists. So any hour
can be read without earlier ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab_pipeline.api import Fact, Topology
from trimtab_pipeline.columns import USAGE
from trimtab_pipeline.history.dataset import FACTS
from trimtab_pipeline.history.files import hour_of
from trimtab_pipeline.transform.arrays import positions
from trimtab_strategies.model.cluster_load import BoolArray, IntArray

COMPLETE = "complete"
"""The kind of a row that names another kind. All facts of that other kind were written together with this row."""


def known_bundles(facts: Iterable[pa.Table]) -> set[str]:
    """The bundles that exist after `facts`: rows of `FACTS` from the beginning of an hour on, oldest first."""
    found: set[str] = set()
    for rows in facts:
        for kind, name, value in zip(*(rows[column].to_pylist() for column in FACTS.columns.names), strict=True):
            if (kind, name) == (COMPLETE, "bundle"):
                found.clear()
            elif kind == "bundle":
                (found.discard if value is None else found.add)(name)
    return found


class FactLog:
    """Finds the facts that changed since the last call.

    The facts of brokers and bundles are derived from the topology. The caller may give facts of any other kind.
    """

    def __init__(self) -> None:
        self._topology: Topology | None = None
        self._values: dict[tuple[str, str], str] = {}
        self._hour = -math.inf

    def changes(
        self, at: float, topology: Topology | None = None, facts: Iterable[Fact] = (), complete: Collection[str] = ()
    ) -> pa.Table:
        """Rows of `FACTS` as of `at` (epoch s): what is new or different; everything in the first call of an hour.

        complete: kinds of which `facts` lists all facts. A fact of such a kind that is not in `facts` no longer exists.
        """
        given = list(facts)
        present = {(fact.kind, fact.name) for fact in given}
        gone = [Fact(*key, None) for key in self._values if key[0] in complete and key not in present]
        rows: list[tuple[str, str, str | None]] = [*self._changed([*given, *gone])]
        if hour_of(at) != self._hour:
            self._topology, self._hour = None, hour_of(at)
            self._values = {key: value for key, value in self._values.items() if key[0] != "broker"}
            kinds = {*complete, *(("broker", "bundle") if topology is not None else ())}
            ended = [row for row in rows if row[2] is None]
            rows = [(COMPLETE, kind, "{}") for kind in sorted(kinds)] + ended
            rows += [(kind, name, value) for (kind, name), value in self._values.items()]
        if topology is not None:
            rows += [*self._changed(_broker_facts(topology, self._topology))]
            rows += bundle_changes(topology, self._topology)
            self._topology = topology
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
        return pa.table(columns, schema=FACTS.columns)

    def forget(self) -> None:
        """Return everything again in the next call, because the last changes could not be written."""
        self._hour = -math.inf

    def _changed(self, facts: Iterable[Fact]) -> Iterator[tuple[str, str, str | None]]:
        """Rows for facts whose value differs from the last one under the same name."""
        for fact in facts:
            key, value = (fact.kind, fact.name), None if fact.value is None else json_text(fact.value)
            if self._values.get(key) == value:
                continue
            if value is None:
                del self._values[key]
            else:
                self._values[key] = value
            yield *key, value


_GONE = -2  # row of a broker that is gone


def _broker_facts(topology: Topology, before: Topology | None) -> Iterator[Fact]:
    for name in sorted(set(before.brokers if before else ()).difference(topology.brokers)):
        yield Fact("broker", name, None)
    for row, name in enumerate(topology.brokers):
        limits = {
            usage: float(limit)
            for usage, limit in zip(USAGE, topology.declared_limit[row], strict=True)
            if math.isfinite(limit)
        }
        yield Fact(
            "broker",
            name,
            {
                "pod": topology.pods[row],
                "ready": bool(topology.ready[row]),
                "schedulable": bool(topology.schedulable[row]),
                "limits": limits,
            },
        )


def bundle_changes(now: Topology, before: Topology | None) -> list[tuple[str, str, str | None]]:
    """Rows of the bundles of `now` that are new or differ from `before`, and of those that are gone."""
    changed = np.flatnonzero(_differs(now, before))
    rows = zip((now.bundles[row] for row in changed), _bundle_values(now, changed), strict=True)
    gone = set(before.bundles).difference(now.bundles) if before and before.bundles != now.bundles else ()
    return [*(("bundle", name, value) for name, value in rows), *(("bundle", name, None) for name in sorted(gone))]


def _differs(now: Topology, before: Topology | None) -> BoolArray:
    """Mask of the bundles whose facts differ."""
    if before is None or not before.bundles:
        return np.ones(len(now.bundles), bool)
    row = _rows(now.bundles, before.bundles)
    there = _rows(before.brokers, now.brokers)
    broker = np.append(np.where(there < 0, _GONE, there), -1)  # current row of each former row; -1 is no broker
    pairs = (
        (now.owner, broker[before.owner]),
        (now.moving_from, broker[before.moving_from]),
        (now.pinned, before.pinned),
        (now.in_flight, before.in_flight),
        (now.moving_share, before.moving_share),
        (now.last_unload, before.last_unload),
    )
    different: BoolArray = row < 0
    for value, last in pairs:
        then = last[row]
        different = different | ((value != then) & ((value == value) | (then == then)))  # noqa: PLR0124  (two NaN are equal)
    return different


def _rows(wanted: tuple[str, ...], names: tuple[str, ...]) -> IntArray:
    """Position of each wanted name in `names`, -1 where it is missing."""
    if wanted == names:
        return np.arange(len(names))
    return positions(pa.array(wanted, pa.string()), pa.array(names, pa.string()))


def _bundle_values(topology: Topology, rows: IntArray) -> list[str]:
    """JSON of each bundle in `rows`. Most have only an owner, so the bundles of a broker share one text."""
    brokers = [*topology.brokers, None]
    owned = [json_text({"owner": name}) for name in brokers]
    busy = topology.pinned | topology.in_flight | np.isfinite(topology.last_unload) | (topology.moving_from >= 0)
    return [
        json_text(_bundle_value(topology, row, brokers)) if special else owned[owner]
        for row, special, owner in zip(rows.tolist(), busy[rows].tolist(), topology.owner[rows].tolist(), strict=True)
    ]


def _bundle_value(topology: Topology, row: int, brokers: list[str | None]) -> Mapping[str, Any]:
    value: dict[str, Any] = {"owner": brokers[topology.owner[row]]}
    value |= {"pinned": True} if topology.pinned[row] else {}
    value |= {"inFlight": True} if topology.in_flight[row] else {}
    if math.isfinite(unload := float(topology.last_unload[row])):
        value["lastUnload"] = unload
    if topology.moving_from[row] >= 0:
        value |= {"movingFrom": brokers[topology.moving_from[row]], "movingShare": float(topology.moving_share[row])}
    return value


def json_text(value: Any) -> str:
    """`value` as JSON. Equal values give equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
