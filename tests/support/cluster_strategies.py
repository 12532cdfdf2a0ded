"""Hypothesis strategies for clusters: small, with ties, gaps and brokers out of order, as real ones are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.testing import NOW, cluster, with_bundles

NAMES = "abcdef"

ratios = st.one_of(st.integers(0, 20).map(lambda step: step / 20), st.floats(0, 1.5))
sizes = st.lists(st.one_of(st.integers(0, 5).map(float), st.floats(0, 100)), max_size=6)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterLoad:
    """Up to six brokers with up to six bundles each; some lost, untrusted or closed, some bundles that may not move."""
    names = NAMES[: draw(st.integers(0, len(NAMES)))]
    some = st.lists(st.sampled_from(names), max_size=2, unique=True) if names else st.just([])
    drawn = cluster(
        bundles={name: draw(sizes) for name in names},
        unowned=draw(st.integers(0, 2)),
        lost=draw(some),
        untrusted=draw(some),
        unschedulable=draw(some),
        **{name: draw(ratios) for name in names},
    )
    rows = st.lists(st.integers(0, len(drawn.bundles) - 1), max_size=2) if len(drawn.bundles) else st.just([])
    drawn = with_bundles(
        drawn,
        pinned=dict.fromkeys(draw(rows), True),
        in_flight=dict.fromkeys(draw(rows), True),
        last_unload=dict.fromkeys(draw(rows), NOW - draw(st.sampled_from([10, 1800, 3600]))),
        short=dict.fromkeys(draw(rows), np.nan),
    )
    return draw(st.sampled_from([drawn, _unknown_broker(drawn)]))


def _unknown_broker(drawn: ClusterLoad) -> ClusterLoad:
    """The cluster with a first broker of which nothing is known, although it is called trusted."""
    usage = drawn.brokers.usage.copy()
    usage[:1] = np.nan
    return replace(drawn, brokers=replace(drawn.brokers, usage=usage))
