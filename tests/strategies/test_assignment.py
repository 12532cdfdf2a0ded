"""Assignment: owners for bundles that no broker serves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from strategy_testing.clusters import FULL, cluster, with_bundles
from trimtab_strategies import registry
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import (
    CPU,
    THROUGHPUT_IN,
    ClusterLoad,
    Decision,
    Isolation,
    Memory,
    NamespacePolicy,
    Reason,
)
from trimtab_strategies.planner.assign import expected_load
from trimtab_strategies.planner.decide import assign

PLACEMENTS = {name: row.build(row.params()) for name, row in registry.PLACEMENTS.items()}
EVERY = pytest.mark.parametrize("placement", PLACEMENTS)
BY_LOAD = pytest.mark.parametrize("placement", sorted(set(PLACEMENTS) - {"RoundRobin", "AvgShedder"}))


def housed(
    drawn: ClusterLoad, placement: str = "LeastResourceUsageWithWeight", reason: Reason = Reason.UNOWNED
) -> Decision:
    rows = np.flatnonzero((drawn.bundles.owner < 0) | ~drawn.brokers.ready[drawn.bundles.owner])
    return assign(drawn, rows, PLACEMENTS[placement], MoveLimits(), Memory(), np.random.default_rng(0), reason)


def spread(decision: Decision) -> dict[str, int]:
    return dict(Counter(move.destination for move in decision.plan.moves))


def no_data(drawn: ClusterLoad) -> ClusterLoad:
    """As the first cycle sees a new cluster: brokers are ready, nothing was ever measured."""
    n, m = len(drawn.brokers), len(drawn.bundles)
    brokers = replace(
        drawn.brokers,
        usage=np.full((n, 5), np.nan),
        limit=np.full((n, 5), np.nan),
        traffic=np.full((n, 4), np.nan),
        age=np.full(n, np.inf),
        trusted=np.zeros(n, dtype=bool),
    )
    return replace(drawn, brokers=brokers, bundles=replace(drawn.bundles, short=np.full((m, 4), np.nan)))


@EVERY
def test_fresh_bundles_spread_evenly_over_idle_brokers(placement: str) -> None:
    idle = cluster(a=0.01, b=0.02, c=0.01, d=0.01, e=0.01, f=0.03, bundles=0, unowned=96)

    assert spread(housed(idle, placement)) == dict.fromkeys("abcdef", 16)


def test_new_cluster_without_any_data_goes_by_number() -> None:
    assert spread(housed(no_data(cluster(a=0, b=0, c=0, bundles={"a": [1] * 4}, unowned=8)))) == {"b": 4, "c": 4}


@BY_LOAD
def test_bundles_without_owner_go_to_those_with_room(placement: str) -> None:
    decision = housed(cluster(a=0.9, b=0.9, c=0.1, unowned=3), placement)

    assert spread(decision) == {"c": 3}
    assert {(move.source, move.reason) for move in decision.plan.moves} == {("", Reason.UNOWNED)}


def isolated(drawn: ClusterLoad, *primary: str) -> ClusterLoad:
    return replace(drawn, policies={"public/new": NamespacePolicy(isolation=Isolation(primary))})


def test_bundle_of_an_isolated_namespace_goes_to_its_own_brokers_only() -> None:
    drawn = isolated(cluster(a=0.9, b=0.8, c=0.1, unowned=4), "a", "b")

    assert spread(housed(drawn)).keys() <= {"a", "b"}
    assert spread(housed(no_data(drawn))) == {"a": 2, "b": 2}


def test_bundle_that_no_broker_may_have_waits_and_says_why() -> None:
    plan = housed(isolated(cluster(a=0.5, b=0.5, unowned=2), "elsewhere")).plan

    assert plan.empty
    waiting, impossible = plan.held_back
    assert (impossible.subject, impossible.reason) == ("public/new", Reason.INVALID_POLICY)
    assert "isolation matches no broker with 'elsewhere'" in impossible.detail
    assert (waiting.reason, waiting.count) == (Reason.ISOLATION, 2)
    assert waiting.detail == "2 bundles without an owner, first public/new/0x00000000_0x80000000: no broker may have it"


def test_unmeasured_bundle_counts_as_a_mean_one() -> None:
    # eight measured bundles cause 160 points of CPU, so each of the forty new ones is expected to bring 20
    drawn = cluster(a=0.8, b=0.8, c=0.0, d=0.0, bundles={"a": [1] * 4, "b": [1] * 4}, unowned=40)
    fresh = np.flatnonzero(drawn.bundles.owner < 0)

    load, traffic = expected_load(drawn, fresh)

    assert load[:, CPU] == pytest.approx([0.2] * 40)
    assert traffic[:, THROUGHPUT_IN] == pytest.approx([0.2 * FULL / 3] * 40)
    counts = spread(housed(drawn, "ExtensibleLeastResourceUsageWithWeight"))
    assert counts.keys() == set("abcd"), "c and d fill up, then all get their part"


def test_bundles_of_a_lost_broker_bring_the_load_they_were_measured_with() -> None:
    drawn = cluster(a=0.4, b=0.4, x=0.8, lost="x", bundles={"a": [1, 1], "b": [1, 1], "x": [3, 1]})

    load, _ = expected_load(drawn, np.array([4, 5]))
    decision = housed(drawn, reason=Reason.BROKER_LOST)

    assert load[:, CPU] == pytest.approx([0.6, 0.2])
    assert {(move.source, move.reason) for move in decision.plan.moves} == {("x", Reason.BROKER_LOST)}
    assert spread(decision) == {"a": 1, "b": 1}
    assert decision.plan.after[:2, CPU].sum() == pytest.approx(160)


def test_lost_and_closed_brokers_get_nothing() -> None:
    drawn = cluster(a=0.1, b=0.1, c=0.1, d=0.1, e=0.9, lost="a", unschedulable="bc", unowned=4)

    assert spread(housed(drawn)).keys() <= {"d", "e"}


def test_too_few_trusted_brokers_go_by_number() -> None:
    drawn = cluster(a=0.0, b=0.9, c=0.9, bundles=1, untrusted="bc", unowned=6)

    assert spread(housed(drawn)) == {"a": 2, "b": 2, "c": 2}


def test_no_ready_broker_leaves_them_waiting_and_says_so() -> None:
    decision = housed(cluster(a=0.1, b=0.1, lost="a", unschedulable="b", unowned=2, bundles=0))

    assert decision.plan.empty
    assert [(held.reason, held.detail) for held in decision.plan.held_back] == [
        (Reason.NO_CANDIDATE, "2 bundles wait: no broker is ready and schedulable")
    ]


def test_no_cap_and_no_cool_down_applies() -> None:
    drawn = with_bundles(cluster(a=0.1, b=0.1, unowned=100), last_unload=dict.fromkeys(range(8, 108), 999_999.0))

    assert len(housed(drawn).plan.moves) == 100


def test_nothing_to_house_is_nothing_to_say() -> None:
    decision = housed(cluster(a=0.1, b=0.1))

    assert (decision.plan.moves, decision.plan.held_back) == ((), ())
