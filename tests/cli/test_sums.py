"""Sums of a picture: what is unknown is counted and not added."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from strategy_testing.clusters import cluster
from trimtab_operator.cli.commands.observe_table import by_broker, by_namespace


def test_bundles_add_up_by_namespace_and_by_owner_without_those_that_are_unknown() -> None:
    drawn = cluster(bundles={"a": [1, 2, 3], "b": [4]}, a=0.8, b=0.2)
    short = drawn.bundles.short.copy()
    short[1] = np.nan
    load = replace(
        drawn,
        namespaces=("t/x", "t/y", "t/empty"),
        bundles=replace(
            drawn.bundles,
            namespace=np.array([0, 0, 1, 1]),
            owner=np.array([0, 0, 0, -1]),
            short=short,
            topics=np.array([1.0, 2.0, np.nan, 4.0]),
        ),
    )
    spaces, brokers = by_namespace(load), by_broker(load)
    assert spaces.bundles.tolist() == [2, 2, 0]
    assert spaces.unknown.tolist() == [1, 0, 0]
    assert spaces.topics.tolist() == [3.0, 4.0, 0.0]
    np.testing.assert_allclose(spaces.traffic, [short[0], short[2] + short[3], np.zeros(4)])
    assert brokers.bundles.tolist() == [3, 0]
    np.testing.assert_allclose(brokers.traffic, [short[0] + short[2], np.zeros(4)])
