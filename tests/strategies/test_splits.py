"""Split candidates become splits: limited in number, and with an owner for every child that should leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import NOW, cluster, with_bundles
from trimtab_strategies import registry
from trimtab_strategies.guard import MoveCaps, MoveLimits, movable_bundles
from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, Memory, NamespacePolicy, Reason
from trimtab_strategies.model.cluster_load import BoolArray, IntArray
from trimtab_strategies.planner.candidates import DestinationChoice, selection_on
from trimtab_strategies.planner.decide import decide
from trimtab_strategies.planner.prediction import PredictedLoad
from trimtab_strategies.planner.splits import Division, divide, splittable_bundles
from trimtab_strategies.protocols import Choice, SplitCandidate, Splitter, Splitting
from trimtab_strategies.splitting.boundaries import InvalidBoundaryError
from trimtab_strategies.usage import Weights


@dataclass(frozen=True)
class Quarters:
    """Splits every bundle of `rows` that it may into four, and remembers which."""

    rows: tuple[int, ...]
    spread: bool = True
    shares: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)

    def split(self, cluster: ClusterLoad, splittable: BoolArray, memory: Mapping[str, Any]) -> Splitting:
        rows = [row for row in self.rows if splittable[row]]
        proposed = tuple(
            SplitCandidate(row, _quarters(cluster, row), Reason.BANDWIDTH, self.spread, np.array(self.shares))
            for row in rows
        )
        return Splitting(proposed, (), {**memory, "divided": rows})


def _quarters(cluster: ClusterLoad, row: int) -> IntArray:
    _, lower, upper = parse_bundle(cluster.bundles.names[row])
    return np.array([lower + k * ((upper - lower) // 4) for k in (1, 2, 3)])


class LeastUsed:
    """The candidate with the least CPU; counts how often it was asked."""

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:  # noqa: ARG002 - every bundle is alike to it
        usage = cluster.brokers.usage[candidates, 0]
        return Choice(candidates[usage == usage.min()], {"asked": memory.get("asked", 0) + 1})


def _divide(
    drawn: ClusterLoad, splitter: Splitter, *, max_splits: int = 10, budget: int = 20, per_broker: int = 10
) -> Division:
    return divide(
        drawn,
        splitter,
        DestinationChoice(LeastUsed(), np.arange(len(drawn.brokers)), selection_on(drawn, None)),
        PredictedLoad(drawn, Weights()),
        Memory({"kept": 1}, {}, {}),
        sheddable=movable_bundles(drawn, MoveLimits()),
        rng=np.random.default_rng(0),
        caps=MoveCaps(len(drawn.brokers), budget=budget, per_broker=per_broker),
        max_splits=max_splits,
    )


def test_children_end_on_the_least_loaded_brokers() -> None:
    drawn = cluster(a=0.8, b=0.05, c=0.1, d=0.15, bundles={"a": [1], "b": [1], "c": [1], "d": [1]})

    division = _divide(drawn, Quarters((0,)))

    assert sorted(division.splits[0].destinations) == ["a", "b", "c", "d"]
    assert division.moved == 3
    assert division.rows.tolist() == [0]


def test_the_heaviest_child_chooses_first() -> None:
    drawn = cluster(a=0.8, b=0.1, c=0.2, bundles={"a": [1], "b": [1], "c": [1]})

    division = _divide(drawn, Quarters((0,), shares=(0.1, 0.2, 0.6, 0.1)))

    assert division.splits[0].destinations[2] == "b"


def test_the_prediction_follows_the_children() -> None:
    drawn = cluster(a=0.8, b=0.0, bundles={"a": [1], "b": []})
    predicted = PredictedLoad(drawn, Weights())

    divide(
        drawn,
        Quarters((0,)),
        DestinationChoice(LeastUsed(), np.arange(2), None),
        predicted,
        Memory(),
        sheddable=movable_bundles(drawn, MoveLimits()),
        rng=np.random.default_rng(0),
        caps=MoveCaps(2, budget=20, per_broker=10),
        max_splits=1,
    )

    assert predicted.percent()[:, 0].tolist() == pytest.approx([40, 40], abs=1e-4)


def test_children_stay_when_no_other_broker_would_be_better_off() -> None:
    division = _divide(cluster(a=0.8, b=0.79, bundles={"a": [1], "b": [1]}), Quarters((0,)))

    assert division.splits[0].destinations == ()
    assert division.moved == 0


def test_children_stay_with_the_owner_unless_the_split_says_spread() -> None:
    division = _divide(cluster(a=0.8, b=0.1), Quarters((0,), spread=False))

    assert division.splits[0].destinations == ()
    assert division.splits[0].source == "a"
    assert division.memory.placement == {}


def test_children_stay_when_the_namespace_may_not_be_unloaded() -> None:
    drawn = cluster(a=0.8, b=0.1)

    division = _divide(replace(drawn, policies={"public/a": NamespacePolicy(unload=False)}), Quarters((0,)))

    assert division.splits[0].destinations == ()


@pytest.mark.parametrize(
    "column",
    [
        pytest.param({"last_unload": {0: NOW - 60}}, id="cooling-down"),
        pytest.param({"short": {0: np.nan}}, id="never-measured"),
    ],
)
def test_children_of_a_bundle_that_the_guard_keeps_stay_with_the_owner(column: dict[str, Any]) -> None:
    drawn = with_bundles(cluster(a=0.8, b=0.1), **column)

    split = _divide(drawn, Quarters((0,))).splits[0]

    assert len(split.boundaries) == 3
    assert split.destinations == ()
    assert _divide(drawn, Quarters((1,))).moved > 0


def test_children_count_against_the_cap_per_broker() -> None:
    drawn = cluster(a=0.8, b=0.0, c=0.0, bundles={"a": [1], "b": [], "c": []})

    division = _divide(drawn, Quarters((0,)), per_broker=1)

    assert sorted(division.splits[0].destinations).count("a") == 3


def test_children_stay_once_the_moves_of_the_decision_are_spent() -> None:
    drawn = cluster(a=0.8, b=0.0, c=0.0, bundles={"a": [1], "b": [], "c": []})

    assert _divide(drawn, Quarters((0,)), budget=1).moved == 1
    assert _divide(drawn, Quarters((0,)), budget=0).splits[0].destinations == ()


def test_children_stay_where_their_group_is_spread_as_evenly_as_can_be() -> None:
    drawn = cluster(a=0.8, b=0.1, bundles=1)
    apart = NamespacePolicy(anti_affinity_group="apart")

    division = _divide(replace(drawn, policies={"public/a": apart, "public/b": apart}), Quarters((0,)))

    assert division.splits[0].destinations == ()
    assert _divide(replace(drawn, policies={"public/a": apart}), Quarters((0,))).moved > 0


def test_however_often_the_cap_cuts_nothing_is_remembered_as_split_that_is_not() -> None:
    """A splitter that wants two more each time it is asked."""

    @dataclass(frozen=True)
    class Endless(Quarters):
        def split(self, cluster: ClusterLoad, splittable: BoolArray, memory: Mapping[str, Any]) -> Splitting:
            return Quarters(tuple(np.flatnonzero(splittable)[:3].tolist())).split(cluster, splittable, memory)

    division = _divide(cluster(a=0.8, b=0.1, bundles=30), Endless(()), max_splits=1)

    assert division.memory.splitter == {"divided": division.rows.tolist()}
    assert len(division.splits) == 1


def test_what_the_cap_cuts_off_is_not_remembered_as_split() -> None:
    division = _divide(cluster(a=0.8, b=0.1), Quarters((0, 1, 2)), max_splits=2)

    assert [split.bundle for split in division.splits] == list(cluster(a=0.8, b=0.1).bundles.names[:2])
    assert division.memory.splitter == {"divided": [0, 1]}
    assert [(entry.reason, entry.count) for entry in division.held_back] == [(Reason.SPLIT_CAP, 1)]


def test_no_split_is_asked_for_when_none_may_be_made() -> None:
    division = _divide(cluster(a=0.8, b=0.1), Quarters((0,)), max_splits=0)

    assert division.splits == ()
    assert [entry.reason for entry in division.held_back] == [Reason.SPLIT_CAP]
    assert division.memory == Memory({"kept": 1}, {}, {})


def test_memory_of_all_three_comes_back() -> None:
    division = _divide(cluster(a=0.8, b=0.1), Quarters((0,)))

    assert division.memory == Memory({"kept": 1}, {"asked": 4}, {"divided": [0]})


def test_boundaries_that_do_not_divide_the_bundle_are_refused() -> None:
    @dataclass(frozen=True)
    class Outside(Quarters):
        def split(self, cluster: ClusterLoad, splittable: BoolArray, memory: Mapping[str, Any]) -> Splitting:
            split = super().split(cluster, splittable, memory).proposed[0]
            return Splitting((replace(split, boundaries=np.array([0])),))

    with pytest.raises(InvalidBoundaryError, match="boundary 0x00000000 is not strictly inside"):
        _divide(cluster(a=0.8, b=0.1), Outside((1,)))


def test_a_splitter_that_does_not_keep_to_what_it_may_divide_is_not_followed() -> None:
    @dataclass(frozen=True)
    class Wilful(Quarters):
        def split(self, cluster: ClusterLoad, splittable: BoolArray, memory: Mapping[str, Any]) -> Splitting:
            return super().split(cluster, np.ones_like(splittable), memory)

    drawn = with_bundles(cluster(a=0.8, b=0.1), pinned={1: True})

    assert _divide(drawn, Wilful((2, 1, 0, 2))).rows.tolist() == [2, 0]


def test_bundles_that_are_pinned_moving_or_unowned_are_not_split() -> None:
    drawn = with_bundles(cluster(a=0.8, b=0.1, lost=["b"], unowned=1), pinned={0: True}, in_flight={1: True})

    assert np.flatnonzero(splittable_bundles(drawn)).tolist() == [2, 3]


def test_bundles_of_a_broker_that_is_not_trusted_are_not_split() -> None:
    drawn = cluster(a=0.8, b=0.1, untrusted=["a"])

    assert np.flatnonzero(splittable_bundles(drawn)).tolist() == [4, 5, 6, 7]
    assert _divide(drawn, Quarters((0, 4))).rows.tolist() == [4]


def test_no_load_goes_from_a_broker_that_is_not_trusted_to_one_that_is() -> None:
    """a's samples can't be right. A quarter of what they show must not end on b."""
    drawn = cluster(bundles={"a": [1], "b": [], "c": [], "d": []}, a=1.0, b=0.0, c=0.0, d=0.0, untrusted=["a"])
    pair = registry.pair("ThresholdShedder", {}, "LeastResourceUsageWithWeight", {})

    plan = decide(drawn, replace(pair, splitter=Quarters((0,))), MoveLimits(), Memory(), np.random.default_rng(0)).plan

    assert not plan.splits
    assert plan.after.tolist() == plan.before.tolist()


def test_a_bundle_that_balancing_leaves_alone_is_not_split_either() -> None:
    drawn = with_bundles(cluster(a=0.8, b=0.1), pinned={})
    withheld = {drawn.bundles.names[1]: Reason.DISRUPTION_BUDGET, "gone": Reason.DISRUPTION_BUDGET}

    assert np.flatnonzero(~splittable_bundles(replace(drawn, withheld=withheld))).tolist() == [1]


def test_a_broker_s_heartbeat_is_not_split() -> None:
    drawn = cluster(a=0.8, b=0.1)

    assert not splittable_bundles(replace(drawn, namespaces=("pulsar/x/a:8080", "public/b", "public/new")))[:4].any()
