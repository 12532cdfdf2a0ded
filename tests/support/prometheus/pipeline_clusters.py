"""Topologies with default values, such as the cluster of two brokers that most tests of sources observe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trimtab_pipeline.api import LoadSource, Topology
from trimtab_strategies.model import ClusterLoad

Observing = Callable[..., LoadSource]
"""Opens a source on the address of a Prometheus server."""

on_both = pytest.mark.parametrize("sources", ["threads", pytest.param("spark", marks=pytest.mark.spark)], indirect=True)
"""Runs a test of cycles with both kinds of sources; without it and the marker `spark`, it runs on threads."""

AT = 1_750_000_000.0
"""Time of the first measurement in most tests of sources (epoch seconds)."""


def topology(brokers: dict[str, str], bundles: dict[str, str], *, declared_cpu: float = np.nan) -> Topology:
    """brokers: pod by broker name. bundles: owner's name by bundle name ("" for none)."""
    n, m, names = len(brokers), len(bundles), list(brokers)
    namespaces = tuple(sorted({name.rsplit("/", 1)[0] for name in bundles}))
    declared = np.full((n, 5), np.nan)
    declared[:, 0] = declared_cpu
    return Topology(
        brokers=tuple(brokers),
        pods=tuple(brokers.values()),
        declared_limit=declared,
        ready=np.ones(n, bool),
        schedulable=np.ones(n, bool),
        namespaces=namespaces,
        bundles=tuple(bundles),
        namespace=np.array([namespaces.index(name.rsplit("/", 1)[0]) for name in bundles], np.int64),
        owner=np.array([names.index(owner) if owner else -1 for owner in bundles.values()], np.int64),
        last_unload=np.full(m, np.nan),
        pinned=np.zeros(m, bool),
        in_flight=np.zeros(m, bool),
        moving_from=np.full(m, -1, np.int64),
        moving_share=np.zeros(m),
    )


FIRST, SECOND = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
TWO_BROKERS = topology({"broker-a": "a", "broker-b": "b"}, {FIRST: "broker-a", SECOND: "broker-b"})
IDLE = "t/idle/0x00000000_0xffffffff"
WITH_IDLE = topology({"broker-a": "a", "broker-b": "b"}, {FIRST: "broker-a", SECOND: "broker-b", IDLE: "broker-b"})
"""`TWO_BROKERS`, and a bundle without traffic."""


def snapshot(source: LoadSource, at: float = AT) -> ClusterLoad:
    """What a cycle at this time sees of `TWO_BROKERS`."""
    return source.observe(TWO_BROKERS, at).result(timeout=120).load


def cut_short(folder: Path) -> Path:
    """Damage the newest state of bundles in `folder`. Returns where the next cycle that finds that sets it aside."""
    newest = max(folder.glob("bundles/*.parquet"))
    newest.write_bytes(newest.read_bytes()[:-30])
    return newest.with_name(f"_{newest.stem}.bad")


def asks_broker_b(promql: str) -> bool:
    """Whether `promql` is a query for the shard of pod b."""
    return 'pod=~"b"' in promql
