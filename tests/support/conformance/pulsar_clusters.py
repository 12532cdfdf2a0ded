"""Converts recordings: clusters to `ClusterLoad`, configuration keys to parameters, broker names to rows and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from conformance.recording import InvalidRecordingError
from trimtab_strategies.model import RESOURCES, TRAFFIC, Brokers, Bundles, ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.params import StrategyParams, pulsar_keys

RESOURCE_FIELDS = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
"""Names of `RESOURCES` in recordings."""


TRAFFIC_FIELDS = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
"""Names of `TRAFFIC` in recordings."""


Fields = Mapping[str, Any]


def merge(entries: dict[str, dict[str, Any]], changes: Mapping[str, Fields]) -> None:
    """Set the given fields of the named entries and create missing entries; other fields stay."""
    for name, changed in changes.items():
        entries.setdefault(name, {}).update(changed)


def resources(entry: Fields) -> tuple[list[float], list[float]]:
    """Usage and limit of each of `RESOURCES`. A resource that was never set has limit -1 and counts as 0 percent."""
    pairs = [entry.get(name, (0.0, -1.0)) for name in RESOURCE_FIELDS]
    return [float(usage) for usage, _ in pairs], [float(limit) for _, limit in pairs]


def traffic(entries: Sequence[Fields]) -> FloatArray:
    """Rates and throughputs of the entries, (k, 4); missing ones are 0."""
    rows = [[float(entry.get(name, 0.0)) for name in TRAFFIC_FIELDS] for entry in entries]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(TRAFFIC))


def cluster(brokers: Mapping[str, Fields], bundles: Mapping[str, Fields], now: float = 0.0) -> ClusterLoad:
    """A cluster of these brokers and bundles. A broker's bundle that is not in `bundles` has never been measured.

    Raises `InvalidRecordingError` when two brokers list the same bundle.
    """
    owner = _owners(brokers)
    names = tuple(dict.fromkeys([*bundles, *owner]))
    spaces = [name.rpartition("/")[0] for name in names]
    rows = {space: row for row, space in enumerate(dict.fromkeys(spaces))}
    short = traffic([bundles.get(name, dict.fromkeys(TRAFFIC_FIELDS, np.nan)) for name in names])
    m = len(names)
    return ClusterLoad(
        brokers=_brokers(brokers),
        bundles=Bundles(
            names=names,
            namespace=np.array([rows[space] for space in spaces], dtype=np.int64),
            owner=np.array([owner.get(name, -1) for name in names], dtype=np.int64),
            short=short,
            long=short,
            topics=np.zeros(m),
            sessions=np.zeros(m),
            last_unload=np.full(m, np.nan),
            pinned=np.zeros(m, dtype=bool),
            in_flight=np.zeros(m, dtype=bool),
            moving_from=np.full(m, -1),
            moving_share=np.zeros(m),
        ),
        namespaces=tuple(rows),
        now=now,
    )


def _owners(brokers: Mapping[str, Fields]) -> dict[str, int]:
    owner: dict[str, int] = {}
    for row, (name, entry) in enumerate(brokers.items()):
        for bundle in entry.get("bundles", ()):
            if owner.setdefault(bundle, row) != row:
                raise InvalidRecordingError(f"bundle {bundle!r} is listed by {name} and by another broker")
    return owner


def _brokers(brokers: Mapping[str, Fields]) -> Brokers:
    n = len(brokers)
    pairs = np.array([resources(entry) for entry in brokers.values()], dtype=np.float64).reshape(n, 2, len(RESOURCES))
    everyone = np.ones(n, dtype=bool)
    return Brokers(
        names=tuple(brokers),
        usage=pairs[:, 0],
        limit=pairs[:, 1],
        traffic=traffic(list(brokers.values())),
        age=np.zeros(n),
        ready=everyone,
        schedulable=everyone,
        trusted=everyone,
    )


Input = Mapping[str, Any]

Answer = dict[str, Any]

Algorithm = Callable[[Input], Answer]

Params = TypeVar("Params", bound=StrategyParams)


def params(model: type[Params], conf: Mapping[str, Any]) -> Params:
    """A strategy's parameters from Pulsar's configuration keys; keys of other strategies are ignored.

    Our bounds are not applied: recordings try values, such as a threshold of 0, that no policy may have. As in Pulsar,
    the old spelling ``...Bandwith...`` counts where the right one is absent or 1.
    """
    keys = pulsar_keys(model)
    old = {key.replace("Bandwidth", "Bandwith"): key for key in keys if "Bandwidth" in key}
    values = {keys[old[key]].name: value for key, value in conf.items() if key in old}
    known = {keys[key].name: keys[key].value(value) for key, value in conf.items() if key in keys}
    values.update({name: value for name, value in known.items() if value != 1 or name not in values})
    return cast("Params", model.model_construct(**values))


def candidates(cluster: ClusterLoad, names: list[str]) -> IntArray:
    """Rows of the named brokers, ascending."""
    return np.array(sorted(cluster.brokers.index[name] for name in names), dtype=np.int64)


def names_of(cluster: ClusterLoad, rows: IntArray) -> list[str]:
    """Names of the brokers `rows`, ascending."""
    return sorted(cluster.brokers.names[row] for row in rows)
