"""Hypothesis strategies for clusters: small, with ties, gaps and faulty brokers, as real ones have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from strategy_testing.clusters import NOW, cluster, with_bundles
from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, Isolation, NamespacePolicy, Topics
from trimtab_strategies.model.cluster_load import FloatArray

NAMES = "abcdef"
ODD = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1e-30, 1.5, 1e39)
"""Numbers that no healthy source sends, and some that it may; the last one is too large for 32 bits."""

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
        topics=dict.fromkeys(draw(rows), draw(st.sampled_from([0, 1, 2, 1001, 5000]))),
        sessions=dict.fromkeys(draw(rows), draw(st.sampled_from([0, 1001, 1e6]))),
    )
    drawn = _with_topics(draw, draw(st.sampled_from([drawn, _unknown_broker(drawn)])))
    return replace(drawn, policies=draw(policies(names)))


@st.composite
def crowded_clusters(draw: st.DrawFn) -> ClusterLoad:
    """Four to six brokers with a few bundles that are too large for the splitters, and whose topics are known.

    At most one broker each is lost, untrusted and closed, so that the guard seldom refuses the whole cycle.
    """
    names = NAMES[: draw(st.integers(4, len(NAMES)))]
    one = st.lists(st.sampled_from(names), max_size=1)
    drawn = cluster(
        bundles={name: draw(st.lists(st.integers(1, 5).map(float), max_size=3)) for name in names},
        lost=draw(one),
        untrusted=draw(one),
        unschedulable=draw(one),
        **{name: draw(ratios) for name in names},
    )
    rows = st.lists(st.integers(0, len(drawn.bundles) - 1), max_size=1) if len(drawn.bundles) else st.just([])
    drawn = with_bundles(
        drawn,
        pinned=dict.fromkeys(draw(rows), True),
        in_flight=dict.fromkeys(draw(rows), True),
        last_unload=dict.fromkeys(draw(rows), NOW - draw(st.sampled_from([10, 1800, 3600]))),
        short=dict.fromkeys(draw(rows), np.nan),
    )
    for row in range(len(drawn.bundles)):
        drawn = _with_inside(drawn, row, draw(st.lists(st.integers(0, 9), min_size=2, max_size=5)))
    return replace(drawn, policies=draw(policies(names)))


def policies(names: str) -> st.SearchStrategy[dict[str, NamespacePolicy]]:
    """Constraints of the namespaces of the first two brokers' bundles; often none."""
    if not names:
        return st.just({})
    hosts = st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True).map(tuple)
    asked = st.one_of(
        st.just(NamespacePolicy(unload=False)),
        st.just(NamespacePolicy(anti_affinity_group="apart")),
        hosts.map(lambda primary: NamespacePolicy(Isolation(primary))),
    )
    spaces = [f"public/{name}" for name in names[:2]]
    return st.one_of(st.just({}), st.dictionaries(st.sampled_from(spaces), asked, max_size=2))


def _unknown_broker(drawn: ClusterLoad) -> ClusterLoad:
    """The cluster with an unknown load of the first broker, which is nevertheless marked as trusted."""
    usage = drawn.brokers.usage.copy()
    usage[:1] = np.nan
    return replace(drawn, brokers=replace(drawn.brokers, usage=usage))


def _with_topics(draw: st.DrawFn, drawn: ClusterLoad) -> ClusterLoad:
    """The cluster with known topics of its first bundle; the bundle's number of topics does not change."""
    weights = draw(st.lists(st.integers(0, 9), max_size=5))
    if not len(drawn.bundles) or not sum(weights):
        return drawn
    return replace(drawn, topics=_with_inside(drawn, 0, weights).topics)


def _with_inside(drawn: ClusterLoad, row: int, weights: list[int]) -> ClusterLoad:
    """The cluster with known topics of a bundle (row), which share its traffic by `weights`."""
    share = np.array(weights, dtype=np.float64) / (sum(weights) or 1)
    name, known = parse_bundle(drawn.bundles.names[row]), drawn.topics
    topics = Topics(
        names=(*known.names, *(f"persistent://{name.namespace}/topic-{row}-{k}" for k in range(len(share)))),
        bundle=np.append(known.bundle, np.full(len(share), row)),
        place=np.append(known.place, np.linspace(name.lower, name.upper - 1, len(share)).astype(np.int64)),
        traffic=np.vstack([known.traffic, np.outer(share, np.nan_to_num(drawn.bundles.short[row]))]),
    )
    return replace(with_bundles(drawn, topics={row: float(len(share))}), topics=topics)


@st.composite
def odd_clusters(draw: st.DrawFn) -> ClusterLoad:
    """Up to four brokers, all marked as trusted, with numbers that are NaN, infinite, negative, zero or huge."""
    names = NAMES[: draw(st.integers(0, 4))]
    drawn = cluster(bundles={name: [3.0, 2.0, 1.0] for name in names}, **dict.fromkeys(names, 0.5))
    brokers, bundles = drawn.brokers, drawn.bundles
    columns = ("short", "long", "topics", "sessions", "last_unload")
    return replace(
        drawn,
        brokers=replace(
            brokers, **{name: _spoilt(draw, getattr(brokers, name)) for name in ("usage", "limit", "traffic")}
        ),
        bundles=replace(bundles, **{name: _spoilt(draw, getattr(bundles, name)) for name in columns}),
    )


def _spoilt(draw: st.DrawFn, array: FloatArray) -> FloatArray:
    """The array with up to four of its numbers replaced by odd ones."""
    spoilt = array.copy()
    if array.size:
        for place in draw(st.lists(st.integers(0, array.size - 1), max_size=4)):
            spoilt.flat[place] = draw(st.sampled_from(ODD))
    return spoilt


def large(brokers: int, per_broker: int) -> ClusterLoad:
    """A cluster of this size in which every tenth broker is hot. The bundles have different sizes."""
    names = [f"broker-{row:03d}" for row in range(brokers)]
    share = np.random.default_rng(0).pareto(2.0, (brokers, per_broker)) + 0.1
    return cluster(
        bundles={name: row.tolist() for name, row in zip(names, share, strict=True)},
        **{name: 0.95 if row % 10 == 0 else 0.3 for row, name in enumerate(names)},
    )
