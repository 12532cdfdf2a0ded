"""Helpers for tests of strategies, including your own: small clusters in one line, and checks that all must pass.

    cluster(a=0.9, b=0.1)                                   two brokers at 90 and 10 % CPU, four equal bundles each
    cluster(a=0.9, b=0.1, bundles={"a": [8, 1, 1], "b": []})  a's load in one large and two small bundles, b has none
    cluster(a=0.5, b=0.5, lost=["b"])                       b is not ready, and its data is not trusted

    with_bundles(cluster(...), pinned={0: True})            bundle 0 is pinned

`strategy_checks` yields every check for every strategy of the registry, `pair_checks` for every pair of a shedder and a
placement. Each check takes a cluster and raises AssertionError if it fails. For your own strategy:
``for check in SHEDDER_CHECKS: check(shedder, cluster)``.
"""

from trimtab_strategies.testing.checks import (
    EXCEPTIONS,
    PAIR_CHECKS,
    PLACEMENT_CHECKS,
    pair_checks,
    parameter_sets,
    strategy_checks,
    variants,
)
from trimtab_strategies.testing.clusters import FULL, NOW, cluster, with_bundles
from trimtab_strategies.testing.strategy_checks import SHEDDER_CHECKS, SPLITTER_CHECKS

__all__ = [
    "EXCEPTIONS",
    "FULL",
    "NOW",
    "PAIR_CHECKS",
    "PLACEMENT_CHECKS",
    "SHEDDER_CHECKS",
    "SPLITTER_CHECKS",
    "cluster",
    "pair_checks",
    "parameter_sets",
    "strategy_checks",
    "variants",
    "with_bundles",
]
