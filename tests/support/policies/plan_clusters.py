"""Clusters for plans: some in which broker a must give bundles away, and level ones."""

from __future__ import annotations

from strategy_testing.clusters import cluster

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)
"""Broker c owns no bundle."""

HOT_NONE_EMPTY = cluster(bundles={"a": [1] * 8, "b": [1], "c": [1]}, a=0.8, b=0.2, c=0.2)
HOT_OF_FOUR = cluster(bundles={"a": [3, 2, 2, 1, 1], "b": [1], "c": [1], "d": [1, 1]}, a=0.9, b=0.2, c=0.3, d=0.6)
"""The average is 50 %: a is far above it, d a little, b and c are idle."""

LEVEL = cluster(bundles=2, a=0.5, b=0.5)
LEVEL_OF_THREE = cluster(bundles=2, a=0.5, b=0.5, c=0.5)
