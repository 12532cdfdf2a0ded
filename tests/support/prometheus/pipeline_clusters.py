"""Topologies to observe, with default values."""

from __future__ import annotations

import numpy as np

from trimtab_pipeline.api import Topology


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
