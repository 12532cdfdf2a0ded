"""A cluster that contradicts itself is refused when it is made, in words that name the value and the bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from strategy_testing.clusters import cluster, with_bundles
from trimtab_strategies.guard import MoveLimits, guard
from trimtab_strategies.model import CPU, RATE_IN, ClusterLoad, InvalidLoadError, Plan, Reason, Split, Topics


def test_a_word_that_an_older_version_stored_is_read_as_what_it_is_called_now() -> None:
    assert Reason("Contested") is Reason("CompetingBalancer") is Reason.COMPETING_BALANCER
    assert Reason("TwoHands") is Reason("PulsarBalancerActive") is Reason.PULSAR_BALANCER_ACTIVE
    for word in ("contested", "", 1):
        with pytest.raises(ValueError, match="is not a valid Reason"):
            Reason(word)


TWO = cluster(a=0.9, b=0.1, bundles=2)


def with_brokers(drawn: ClusterLoad, **columns: object) -> ClusterLoad:
    return replace(drawn, brokers=replace(drawn.brokers, **columns))


def topics(bundle: int) -> Topics:
    return Topics(("persistent://public/a/t",), np.array([bundle]), np.array([0]), np.ones((1, 4)))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: with_brokers(TWO, names=("a", "a")), "brokers.names has 'a' twice"),
        (
            lambda: replace(TWO, bundles=replace(TWO.bundles, names=("x", "y", "x", "z"))),
            "bundles.names has 'x' twice: each name must stand for one row",
        ),
        (
            lambda: with_bundles(TWO, owner={0: 2}),
            "bundles.owner has 2: it must be -1 (no owner) or a row of the brokers",
        ),
        (lambda: with_bundles(TWO, owner={0: -2}), "bundles.owner has -2"),
        (lambda: with_bundles(TWO, moving_from={1: 7}), "bundles.moving_from has 7"),
        (lambda: with_bundles(TWO, namespace={1: 9}), "bundles.namespace has 9: it must be a row of the namespaces"),
        (
            lambda: replace(TWO, topics=topics(4)),
            "topics.bundle has 4: it must be a row of the bundles, of which there",
        ),
        (lambda: with_brokers(TWO, age=np.zeros(3)), r"brokers.age has shape (3,), expected (2,)"),
    ],
)
def test_contradiction_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(InvalidLoadError) as error:
        make()

    assert told in str(error.value)


def test_arrays_of_a_cluster_can_t_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        TWO.brokers.usage[0, 0] = 1


@pytest.mark.parametrize("value", [-0.1, -5.0])
def test_broker_with_negative_load_is_not_trusted(value: float) -> None:
    usage, traffic = TWO.brokers.usage.copy(), TWO.brokers.traffic.copy()
    usage[0, CPU] = traffic[1, RATE_IN] = value

    doubted = [
        guard(drawn, MoveLimits(), moved_last_hour=0).may_shed.counts()
        for drawn in (with_brokers(TWO, usage=usage), with_brokers(TWO, traffic=traffic))
    ]

    assert doubted == [{Reason.UNTRUSTED: 1}, {Reason.UNTRUSTED: 1}]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0])
def test_bundle_with_impossible_load_stays(value: float) -> None:
    drawn = with_bundles(TWO, short={0: value})

    assert guard(drawn, MoveLimits(), moved_last_hour=0).sheddable.counts() == {Reason.NO_LOAD_DATA: 1}


def test_plan_that_only_splits_is_not_empty() -> None:
    split = Split("t/n/0x00000000_0xffffffff", "a", (0x7FFFFFFF,), Reason.MSG_RATE)
    nothing = np.empty((0, 5))

    assert Plan((), (), (), nothing, nothing).empty
    assert not Plan((), (), (), nothing, nothing, splits=(split,)).empty
    assert str(split) == "t/n/0x00000000_0xffffffff: split at 0x7fffffff (MsgRate)"
