"""The guard: what may be touched, and when a cycle moves nothing at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from strategy_testing.clusters import NOW, cluster, with_bundles
from trimtab_strategies.guard import Guarded, MoveLimits, guard
from trimtab_strategies.model import CPU, NETWORK_IN, ClusterLoad, DataQuality, Doubt, HeldBack, Reason


def guarded(drawn: ClusterLoad, *, moved_last_hour: int = 0, **limits: float) -> Guarded:
    return guard(drawn, MoveLimits(**limits), moved_last_hour=moved_last_hour)  # type: ignore[arg-type]


def with_usage(drawn: ClusterLoad, column: int, rows: slice, value: float) -> ClusterLoad:
    usage = drawn.brokers.usage.copy()
    usage[rows, column] = value
    return replace(drawn, brokers=replace(drawn.brokers, usage=usage))


def reasons(drawn: ClusterLoad) -> dict[str, Reason | None]:
    verdict = guarded(drawn).may_receive
    return {name: verdict.reason(row) for row, name in enumerate(drawn.brokers.names)}


def test_healthy_cluster_may_do_everything() -> None:
    allowed = guarded(cluster(a=0.9, b=0.1))

    assert allowed.refusal is None
    assert allowed.may_shed.allowed.all()
    assert allowed.may_receive.allowed.all()
    assert allowed.sheddable.allowed.all()
    assert allowed.held_back == ()


def test_a_broker_s_heartbeat_stays_where_it_is() -> None:
    drawn = replace(cluster(a=0.9, b=0.1), namespaces=("pulsar/local/a:8080", "public/b", "public/new"))

    verdict = guarded(drawn).sheddable

    assert verdict.allowed.tolist() == [False] * 4 + [True] * 4
    assert verdict.reason(0) is Reason.EXCLUDED


@pytest.mark.parametrize("value", [-1.0, np.inf])
def test_traffic_that_cannot_be_is_not_trusted(value: float) -> None:
    drawn = cluster(a=0.9, b=0.1, c=0.1)
    traffic = drawn.brokers.traffic.copy()
    traffic[0, 2] = value

    assert reasons(replace(drawn, brokers=replace(drawn.brokers, traffic=traffic))) == {
        "a": Reason.UNTRUSTED,
        "b": None,
        "c": None,
    }


def test_each_bundle_that_stays_has_one_reason() -> None:
    drawn = with_bundles(
        cluster(a=0.9, b=0.1, bundles=4, unowned=1),
        pinned={0: True, 1: True},
        in_flight={1: True, 2: True},
        last_unload={3: NOW - 1800, 4: NOW - 1801},
        short={5: np.nan},
    )

    verdict = guarded(drawn).sheddable

    assert [verdict.reason(row) for row in range(9)] == [
        Reason.PINNED,
        Reason.PINNED,
        Reason.IN_FLIGHT,
        Reason.COOL_DOWN,  # exactly as old as the cool-down still stays
        None,
        Reason.NO_LOAD_DATA,
        None,
        None,
        Reason.UNOWNED,
    ]


def test_a_move_dated_in_the_future_holds_nothing_back() -> None:
    drawn = with_bundles(cluster(a=0.9, b=0.1, bundles=2), last_unload={0: NOW + 86400, 1: NOW + 2})

    verdict = guarded(drawn).sheddable

    assert verdict.reason(0) is None
    assert verdict.reason(1) is Reason.COOL_DOWN


def test_bundles_held_back_are_reported_per_reason_with_their_number() -> None:
    drawn = with_bundles(cluster(a=0.9, b=0.1, bundles=50), pinned=dict.fromkeys(range(40), True))

    (held,) = guarded(drawn).held_back

    assert (held.subject, held.reason, held.count) == ("", Reason.PINNED, 40)
    assert held.detail == "40 bundles pinned to their owner"


def test_the_cool_down_is_shown_as_policies_write_it() -> None:
    drawn = with_bundles(cluster(a=0.9, b=0.1, bundles=2), last_unload=dict.fromkeys(range(4), NOW))

    (held,) = guarded(drawn).held_back

    assert held.detail.endswith(" bundles moved less than 30m ago")


def test_closed_broker_sheds_but_does_not_receive() -> None:
    allowed = guarded(cluster(a=0.5, b=0.5, unschedulable=["b"]))

    assert allowed.may_shed.allowed.tolist() == [True, True]
    assert allowed.may_receive.allowed.tolist() == [True, False]
    assert allowed.held_back == (HeldBack("b", Reason.UNSCHEDULABLE, "takes no bundles"),)


def test_broker_that_is_not_trusted_says_what_is_wrong_with_its_data() -> None:
    drawn = cluster(a=0.5, b=0.5, c=0.5, d=0.5, e=0.5, lost=["b"], untrusted=["c", "d", "e"])
    drawn = with_usage(drawn, CPU, slice(3, 4), np.nan)
    drawn = replace(drawn, brokers=replace(drawn.brokers, age=np.array([0, 500, 500, 0, np.inf])))

    assert reasons(drawn) == {
        "a": None,
        "b": Reason.NOT_READY,
        "c": Reason.OUT_DATED_DATA,
        "d": Reason.UNTRUSTED,
        "e": Reason.NO_LOAD_DATA,
    }


def test_the_doubt_about_a_broker_s_data_gives_its_reason_and_its_detail() -> None:
    drawn = cluster(a=0.5, b=0.5, c=0.5, untrusted=["c"])
    doubts = {
        "b": Doubt(Reason.UNTRUSTED, "not said of b"),
        "c": Doubt(Reason.PARTIAL_DATA, "its shard did not answer"),
    }
    drawn = replace(drawn, quality=DataQuality(doubts=doubts))

    assert reasons(drawn) == {"a": None, "b": None, "c": Reason.PARTIAL_DATA}
    assert guarded(drawn).held_back == (HeldBack("c", Reason.PARTIAL_DATA, "its shard did not answer"),)


def test_resource_that_one_broker_lacks_rules_that_broker_out() -> None:
    drawn = with_usage(cluster(a=0.5, b=0.5, c=0.5), NETWORK_IN, slice(2, 3), np.nan)

    assert reasons(drawn) == {"a": None, "b": None, "c": Reason.NO_LOAD_DATA}


def test_resource_that_no_one_has_is_left_out() -> None:
    drawn = with_usage(cluster(a=0.5, b=0.5), NETWORK_IN, slice(None), np.nan)

    assert reasons(drawn) == {"a": None, "b": None}


def test_brokers_of_which_nothing_is_known_are_not_compared() -> None:
    drawn = replace(cluster(a=0.5, b=0.5))
    nothing = replace(drawn.brokers, usage=np.full((2, 5), np.nan))

    refusal = guarded(replace(drawn, brokers=nothing)).refusal

    assert refusal is not None
    assert refusal.reason is Reason.NO_LOAD_DATA


@pytest.mark.parametrize(
    ("drawn", "reason"),
    [
        pytest.param(cluster(), Reason.NO_BROKERS, id="no broker"),
        pytest.param(cluster(a=0.9), Reason.NO_BROKERS, id="one broker"),
        pytest.param(cluster(a=0.9, b=0.1, c=0.1, lost="bc"), Reason.MASS_FAILURE, id="two of three lost"),
        pytest.param(cluster(a=0.9, b=0.1, c=0.1, untrusted="c"), Reason.OUT_DATED_DATA, id="one of three doubtful"),
        pytest.param(cluster(a=0.9, b=0.1, c=0.1, lost="c"), None, id="one of three lost"),
        pytest.param(cluster(a=0.9, b=0.1, lost="b"), Reason.NO_BROKERS, id="one of two lost"),
        pytest.param(cluster(a=0.9, b=0.1, c=0.1, d=0.2, untrusted="d"), None, id="one of four doubtful"),
        pytest.param(cluster(a=0.9, b=0.1, c=0.1, lost="c", untrusted="b"), Reason.OUT_DATED_DATA, id="both"),
    ],
)
def test_cycle_is_refused_when_too_much_is_missing(drawn: ClusterLoad, reason: Reason | None) -> None:
    refusal = guarded(drawn).refusal

    assert (refusal and refusal.reason) == reason


def test_refusal_names_the_figure_the_bound_and_the_setting() -> None:
    refusal = guarded(cluster(a=0.9, b=0.1, c=0.1, lost="bc")).refusal

    assert refusal is not None
    assert refusal.detail == "2 of 3 brokers are not ready, more than 40% (limits.maxLostBrokersPercent)"


def test_incomplete_answer_refuses_the_cycle_only_when_bundles_lack_data() -> None:
    quality = DataQuality(failed=(("shard 2", "timed out"),))
    complete = replace(cluster(a=0.9, b=0.1), quality=quality)
    lacking = with_bundles(complete, short=dict.fromkeys(range(3), np.nan))

    assert guarded(complete).refusal is None
    refusal = guarded(lacking).refusal
    assert refusal is not None
    assert (refusal.reason, refusal.detail) == (
        Reason.PARTIAL_DATA,
        "5 of 8 bundles are measured (shard 2: timed out)",
    )


@pytest.mark.parametrize(
    ("moved", "budget", "cap"),
    [(0, 20, Reason.CYCLE_CAP), (180, 20, Reason.CYCLE_CAP), (190, 10, Reason.HOUR_CAP), (900, 0, Reason.HOUR_CAP)],
)
def test_budget_is_what_the_tighter_cap_leaves(moved: int, budget: int, cap: Reason) -> None:
    allowed = guarded(cluster(a=0.9, b=0.1), moved_last_hour=moved)

    assert (allowed.budget, allowed.cap) == (budget, cap)
