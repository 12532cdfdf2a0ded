"""LeastResourceUsageWithWeight: who has room, in both of Pulsar's forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import cluster
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.placement.least_resource_usage import (
    ExtensibleLeastResourceUsageWithWeight,
    ExtensibleLeastResourceUsageWithWeightParams,
    LeastResourceUsageWithWeight,
    LeastResourceUsageWithWeightParams,
)
from trimtab_strategies.protocols import Choice, Placement

MODULAR = LeastResourceUsageWithWeight(LeastResourceUsageWithWeightParams())
EXTENSIBLE = ExtensibleLeastResourceUsageWithWeight(ExtensibleLeastResourceUsageWithWeightParams())
BOTH = pytest.mark.parametrize("placement", [MODULAR, EXTENSIBLE], ids=["modular", "extensible"])


def best(placement: Placement, drawn: ClusterLoad, memory: dict[str, Any] | None = None) -> tuple[set[str], Choice]:
    choice = placement.best(drawn, 0, np.arange(len(drawn.brokers)), memory or {})
    return {drawn.brokers.names[row] for row in choice.brokers}, choice


@BOTH
def test_those_well_below_the_average_have_room(placement: Placement) -> None:
    # average 50
    assert best(placement, cluster(a=0.9, b=0.6, c=0.3, d=0.2))[0] == {"c", "d"}


@BOTH
def test_even_brokers_are_all_as_good(placement: Placement) -> None:
    assert best(placement, cluster(a=0.5, b=0.55, c=0.45))[0] == {"a", "b", "c"}


@BOTH
def test_only_candidates_are_averaged(placement: Placement) -> None:
    drawn = cluster(a=0.9, b=0.6, c=0.3, d=0.0)

    choice = placement.best(drawn, 0, np.array([0, 1, 2]), {})

    assert choice.brokers.tolist() == [2]


def test_modular_average_advances_with_every_call() -> None:
    memory = best(MODULAR, cluster(a=0.5, b=0.5))[1].memory
    busier = cluster(a=1.0, b=0.5)

    smoothed = []
    for _ in range(2):
        memory = best(MODULAR, busier, dict(memory))[1].memory
        smoothed.append(memory["brokers"]["ema"]["a"])

    assert smoothed == pytest.approx([0.55, 0.595])


def test_modular_forgets_a_broker_without_bundles() -> None:
    memory = best(MODULAR, cluster(a=1.0, b=0.5))[1].memory
    emptied = replace(cluster(a=0.1, b=0.5, bundles={"b": [1]}), now=2e6)

    assert best(MODULAR, emptied, dict(memory))[1].memory["brokers"]["ema"]["a"] == pytest.approx(0.1)


def test_extensible_average_advances_once_per_snapshot() -> None:
    memory = best(EXTENSIBLE, cluster(a=0.5, b=0.5))[1].memory
    later = replace(cluster(a=1.0, b=0.5), now=2e6)

    for _ in range(2):
        memory = best(EXTENSIBLE, later, dict(memory))[1].memory

    assert memory["brokers"]["ema"]["a"] == pytest.approx(0.55)


def test_extensible_sees_load_that_was_planned_since_in_full() -> None:
    seen = cluster(a=0.9, b=0.3, c=0.3)
    chosen, choice = best(EXTENSIBLE, seen)
    after_one_move = cluster(a=0.9, b=0.6, c=0.3)

    assert chosen == {"b", "c"}
    assert best(EXTENSIBLE, after_one_move, dict(choice.memory))[0] == {"c"}


def test_extensible_takes_a_broker_without_data_only_when_no_broker_has_room() -> None:
    def unknown_c(drawn: ClusterLoad) -> ClusterLoad:
        usage = drawn.brokers.usage.copy()
        usage[2] = np.nan
        return replace(drawn, brokers=replace(drawn.brokers, usage=usage))

    assert best(EXTENSIBLE, unknown_c(cluster(a=0.9, b=0.1, c=0.0)))[0] == {"b"}
    assert best(EXTENSIBLE, unknown_c(cluster(a=0.5, b=0.5, c=0.0)))[0] == {"a", "b", "c"}


def test_heap_counts_in_the_extensible_form_alone() -> None:
    drawn = cluster(a=0.5, b=0.5)
    usage = drawn.brokers.usage.copy()
    usage[0, 1] = drawn.brokers.limit[0, 1]  # a's heap is full
    full = replace(drawn, brokers=replace(drawn.brokers, usage=usage))
    weighty = ExtensibleLeastResourceUsageWithWeightParams(memory_weight=1)

    assert best(MODULAR, full)[0] == {"a", "b"}
    assert best(ExtensibleLeastResourceUsageWithWeight(weighty), full)[0] == {"b"}
