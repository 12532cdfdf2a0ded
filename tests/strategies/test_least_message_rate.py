"""LeastLongTermMessageRate: the broker with the fewest messages, what it was just given included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import cluster, with_bundles
from trimtab_strategies.model import RATE_IN, RATE_OUT, ClusterLoad
from trimtab_strategies.placement.least_message_rate import LeastLongTermMessageRate, LeastLongTermMessageRateParams

PLACEMENT = LeastLongTermMessageRate(LeastLongTermMessageRateParams())


def world(cpu: Mapping[str, float] | None = None, unowned: int = 0, **rates: list[float]) -> ClusterLoad:
    """Brokers with bundles of these long-term message rates, half of them in."""
    usage = {**dict.fromkeys(rates, 0.5), **(cpu or {})}
    drawn = cluster(bundles=rates, unowned=unowned, **usage)
    long = np.full((len(drawn.bundles), 4), np.nan)
    values = np.array([value for own in rates.values() for value in own])
    long[: len(values), RATE_IN] = long[: len(values), RATE_OUT] = values / 2
    return replace(drawn, bundles=replace(drawn.bundles, long=long))


def best(drawn: ClusterLoad, memory: Mapping[str, Any] | None = None, **params: Any) -> set[str]:
    placement = LeastLongTermMessageRate(LeastLongTermMessageRateParams(**params))
    choice = placement.best(drawn, 0, np.arange(len(drawn.brokers)), memory or {})
    return {drawn.brokers.names[row] for row in choice.brokers}


def test_the_fewest_messages_win_whatever_the_usage() -> None:
    assert best(world(a=[100, 300], b=[150, 150], c=[500], cpu={"b": 0.8, "c": 0.1})) == {"b"}


def test_equal_rates_tie() -> None:
    assert best(world(a=[100, 200], b=[300], c=[301])) == {"a", "b"}


def test_a_broker_without_bundles_has_none() -> None:
    assert best(world(a=[1], b=[], c=[2])) == {"b"}


def test_an_overloaded_broker_is_out_of_the_question() -> None:
    drawn = world(a=[100], b=[200], c=[300], cpu={"a": 0.9})

    assert best(drawn) == {"b"}
    assert best(drawn, overload_threshold=95) == {"a"}


def test_exactly_the_limit_is_no_overload() -> None:
    assert best(world(a=[100], b=[200], cpu={"a": 0.85})) == {"a"}


def test_all_tie_when_all_are_overloaded() -> None:
    assert best(world(a=[100], b=[200], cpu={"a": 0.9, "b": 0.95})) == {"a", "b"}


def test_a_bundle_never_averaged_counts_fifty_in_each_direction() -> None:
    fresh = with_bundles(world(a=[1], b=[99], c=[101]), long={0: np.nan})

    assert best(fresh) == {"b"}  # a counts 100


def test_what_was_given_since_the_snapshot_counts() -> None:
    drawn = world(a=[100], b=[150], c=[400], unowned=2)
    memory = PLACEMENT.chosen(drawn, 3, 0, {})  # a bundle of unknown rate, so 100, to a

    assert best(drawn, memory) == {"b"}
    assert best(drawn, PLACEMENT.chosen(drawn, 4, 1, memory)) == {"a"}


def test_a_new_snapshot_begins_with_nothing_given() -> None:
    drawn = world(a=[100], b=[150], unowned=1)
    memory = PLACEMENT.chosen(drawn, 2, 0, {})

    assert best(replace(drawn, now=drawn.now + 60), memory) == {"a"}


def test_only_candidates_are_compared() -> None:
    drawn = world(a=[100], b=[200], c=[300])

    assert PLACEMENT.best(drawn, 0, np.array([1, 2]), {}).brokers.tolist() == [1]


@pytest.mark.parametrize("odd", [np.inf, -np.inf])
def test_infinite_rates_stay_json(odd: float) -> None:
    drawn = with_bundles(world(a=[1, 1], b=[2]), long={0: odd})

    memory = PLACEMENT.best(drawn, 0, np.array([0, 1]), {}).memory

    assert all(np.isfinite(rate) for rate in memory["brokers"]["longTerm"].values())
