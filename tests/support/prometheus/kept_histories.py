"""Histories with default values, written as the pipeline writes them, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pipeline_clusters import topology
from strategy_testing.clusters import cluster
from trimtab_pipeline.api import Retention, Topology
from trimtab_pipeline.columns import BROKER_STATE, BUNDLE_STATE, INSIDE, LONG, SHORT, TRAFFIC
from trimtab_pipeline.history.dataset import HistoryDataset, HistoryTable, PolicyDataset
from trimtab_pipeline.history.files import read_all
from trimtab_pipeline.history.housekeeping import Housekeeping
from trimtab_pipeline.history.location import Place
from trimtab_pipeline.history.snapshot_tables import Bounds
from trimtab_pipeline.history.writer import HistoryTidier, HistoryWriter
from trimtab_strategies.model import ClusterLoad, DataQuality, Doubt, Reason

HOUR = 3600.0
AT = 486_111 * HOUR
"""15:00 on 15 June 2025, UTC."""
USUAL = Bounds()
FOREVER = Retention(seconds=1e9, bytes=2**40)
LOAD = replace(
    cluster(bundles={"a": [1, 2, 3], "b": [1]}, a=0.8, b=0.2),
    quality=DataQuality(
        {"NaN": 3},
        0,
        1,
        (("broker b", "http://prometheus.acme.example: refused"),),
        ("store 2 is out",),
        {"b": Doubt(Reason.PARTIAL_DATA, "the query for its group of brokers got no answer")},
        ("a: counters were reset",),
    ),
)


class NoHousekeeping(HistoryTidier):
    """Leaves the files as they are written."""

    def __init__(self) -> None:
        super().__init__()
        self.close()


def keep(root: Place, policy: str, minutes: Iterable[float], load: ClusterLoad = LOAD, bounds: Bounds = USUAL) -> None:
    """A cycle of `load` at each of `minutes` after `AT`; broker x runs in pod ``x-pod``."""
    writer = HistoryWriter(root, policy, FOREVER, NoHousekeeping())
    for minute in minutes:
        at = AT + 60 * minute
        tables, now = measured(load, at), replace(load, now=at)
        assert writer.keep(*tables, now, resources(load), inside=inside(load), bounds=bounds) == ""


def merge(root: Place, policy: str, minute: float) -> None:
    """Merge the files that are due at `minute`, and remove none."""
    Housekeeping(dataset(root, policy), FOREVER).tidy(AT + 60 * minute)


def dataset(root: Place, policy: str) -> PolicyDataset:
    """The history of a policy below `root`."""
    return HistoryDataset(root).of(policy)


def held(root: Place, policy: str, table: HistoryTable) -> pa.Table:
    """All rows of a table."""
    files = dataset(root, policy).files(table)
    return pa.concat_tables([table.schema.empty_table(), *(read_all(file, table) for file in files)])


def resources(load: ClusterLoad) -> Topology:
    """The topology that `load` was measured with."""
    names = [*load.brokers.names, ""]
    owners = {bundle: names[row] for bundle, row in zip(load.bundles.names, load.bundles.owner, strict=True)}
    return topology({name: f"{name}-pod" for name in load.brokers.names}, owners)


def inside(load: ClusterLoad) -> pa.Table:
    """Two topics of the first bundle."""
    bundle = load.bundles.names[0]
    rows = [
        {"topic": f"persistent://{bundle.rpartition('/')[0]}/{name}", "bundle": bundle, "pod": "a-pod", "place": place}
        for name, place in (("one", 1.0), ("two", 2.0))
    ]
    return pa.Table.from_pylist([row | dict.fromkeys(TRAFFIC, 1.0) for row in rows], pa.schema(list(INSIDE)))


def measured(load: ClusterLoad, at: float) -> tuple[pa.Table, pa.Table]:
    """`BROKER_STATE` and `BUNDLE_STATE` of a cycle that measured `load` at `at`, with its averages."""
    pods = [f"{name}-pod" for name in load.brokers.names]
    bundles = load.bundles
    columns = {
        "bundle": list(bundles.names),
        "pod": [pods[row] for row in bundles.owner],
        "topics": bundles.topics,
        "sessions": bundles.sessions,
        "seen": np.full(len(bundles), at),
        "time": np.full(len(bundles), at),
        "count": np.full(len(bundles), 1.0),
    }
    for names, values in ((TRAFFIC, bundles.short), (SHORT, bundles.short), (LONG, bundles.long)):
        columns |= {name: values[:, k] for k, name in enumerate(names)}
    known = {"pod": pods, "resource_time": np.full(len(pods), at), "traffic_time": np.full(len(pods), at)}
    brokers = {name: known.get(name, [None] * len(pods)) for name in BROKER_STATE.names}
    return pa.table(brokers, schema=BROKER_STATE), pa.table(columns, schema=BUNDLE_STATE)
