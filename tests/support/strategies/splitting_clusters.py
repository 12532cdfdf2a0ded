"""Generated clusters for tests of splitting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from strategy_testing.clusters import cluster
from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, Reason, Topics
from trimtab_strategies.protocols import Splitting

MEBIBYTE = 1048576


def large(columns: Mapping[int, Mapping[str, float]], **drawing: Any) -> ClusterLoad:
    """A generated cluster (two brokers by default) in which the given bundles (rows) have the given values.

    topics, sessions: numbers. rate: msg/s, throughput: MiB/s, both in short and long-term averages; other bundles have
    two topics and hardly any load.
    """
    drawn = cluster(**(drawing or {"a": 0.5, "b": 0.5}))
    bundles = drawn.bundles
    topics, sessions = np.full(len(bundles), 2.0), np.zeros(len(bundles))
    traffic = np.ones((len(bundles), 4))
    for row, given in columns.items():
        topics[row] = given.get("topics", 2)
        sessions[row] = given.get("sessions", 0)
        traffic[row, :2] = given.get("rate", 2) / 2
        traffic[row, 2:] = given.get("throughput", 0.001) * MEBIBYTE / 2
    return replace(
        drawn, bundles=replace(bundles, topics=topics, sessions=sessions, short=traffic, long=traffic.copy())
    )


def with_topics(drawn: ClusterLoad, inside: Mapping[int, Sequence[tuple[float, float]]]) -> ClusterLoad:
    """The cluster with known topics of some bundles (rows). A topic is its place in the bundle (ratio 0-1) and MiB/s.

    A topic carries 10 messages a second for each MiB/s. The bundle's own numbers follow its topics.
    """
    bundles = drawn.bundles
    topics, short = bundles.topics.copy(), bundles.short.copy()
    names, rows, places, traffic = [], [], [], []
    for row, known in inside.items():
        _, lower, upper = parse_bundle(bundles.names[row])
        for k, (place, throughput) in enumerate(known):
            names.append(f"persistent://{drawn.namespaces[bundles.namespace[row]]}/topic-{row}-{k}")
            rows.append(row)
            places.append(int(lower + place * (upper - lower)))
            traffic.append([throughput * 5, throughput * 5, throughput * MEBIBYTE / 2, throughput * MEBIBYTE / 2])
        topics[row] = len(known)
        short[row] = np.sum(traffic[-len(known) :], axis=0)
    return replace(
        drawn,
        bundles=replace(bundles, topics=topics, short=short, long=short.copy()),
        topics=Topics(tuple(names), np.array(rows), np.array(places), np.array(traffic, dtype=np.float64)),
    )


def reasons(splitting: Splitting) -> list[Reason]:
    """Why bundles were not split."""
    return [entry.reason for entry in splitting.held_back]
