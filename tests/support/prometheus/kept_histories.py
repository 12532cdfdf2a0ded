"""Histories with default values, written as the pipeline writes them, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from trimtab_pipeline.api import Retention
from trimtab_pipeline.columns import BROKER_STATE, BUNDLE_STATE, LONG, SHORT
from trimtab_pipeline.history.housekeeping import Housekeeping
from trimtab_pipeline.history.snapshot_tables import broker_table, quality_table
from trimtab_pipeline.history.store import History
from trimtab_pipeline.history.writer import TABLES
from trimtab_strategies.model import ClusterLoad, DataQuality, Doubt, Reason
from trimtab_strategies.testing import cluster

HOUR = 3600.0
AT = 486_111 * HOUR
"""15:00 on 15 June 2025, UTC."""
LOAD = replace(
    cluster(bundles={"a": [1, 2, 3], "b": [1]}, a=0.8, b=0.2),
    quality=DataQuality(
        {"NaN": 3},
        0,
        1,
        (("broker b", "http://prometheus.acme.example: refused"),),
        ("store 2 is out",),
        {"b": Doubt(Reason.PARTIAL_DATA, "its part of the source did not answer")},
        ("a: counters were reset",),
    ),
)


def keep(root: Path, policy: str, minutes: Iterable[float], load: ClusterLoad = LOAD) -> None:
    """A cycle of `load` at each of `minutes` after `AT`; broker x runs in pod ``x-pod``."""
    for minute in minutes:
        for table, rows in tables(load, AT + 60 * minute).items():
            History(root / policy / table, *TABLES[table]).write(rows, AT + 60 * minute)


def merge(root: Path, policy: str, minute: float) -> None:
    """Tidy up as of `minute`, and keep everything."""
    histories = [History(root / policy / table, *columns) for table, columns in TABLES.items()]
    Housekeeping(histories, Retention(seconds=1e9, bytes=2**40)).tidy(AT + 60 * minute)


def tables(load: ClusterLoad, at: float) -> dict[str, pa.Table]:
    """The tables of a cycle that measured and trusted `load`."""
    pods = [f"{name}-pod" for name in load.brokers.names]
    bundles = load.bundles
    columns = {
        "bundle": list(bundles.names),
        "pod": [pods[row] for row in bundles.owner],
        "topics": bundles.topics,
        "sessions": bundles.sessions,
        "seen": np.full(len(bundles), at),
    }
    columns |= {name: bundles.short[:, k] for k, name in enumerate(SHORT)}
    columns |= {name: bundles.long[:, k] for k, name in enumerate(LONG)}
    full = {name: columns.get(name, [None] * len(bundles)) for name in BUNDLE_STATE.names}
    brokers = {name: pods if name == "pod" else [None] * len(pods) for name in BROKER_STATE.names}
    return {
        "bundles": pa.table(full, schema=BUNDLE_STATE),
        "brokers": pa.table(brokers, schema=BROKER_STATE),
        "picture": broker_table(load.brokers, pods, load.quality.doubts),
        "quality": quality_table(load.quality),
    }
