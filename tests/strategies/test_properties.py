"""Every strategy of the registry keeps to the same rules, on clusters that hypothesis draws.

The examples differ from run to run; a failure prints what reproduces it.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from cluster_strategies import clusters, crowded_clusters, large, odd_clusters
from strategy_testing.checks import EXCEPTIONS, pair_checks, strategy_checks, variants
from strategy_testing.clusters import cluster
from strategy_testing.compare import movable, plans, sheddings
from strategy_testing.strategy_checks import splittings
from trimtab_strategies import registry
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, Memory, Reason, Topics
from trimtab_strategies.model.cluster_load import IntArray
from trimtab_strategies.params import StrategyParams
from trimtab_strategies.planner.decide import assign, decide
from trimtab_strategies.protocols import Shedder, Splitter
from trimtab_strategies.registry import InvalidParamsError, Row

KINDS = {"shedder": registry.SHEDDERS, "placement": registry.PLACEMENTS, "splitter": registry.SPLITTERS}
TABLES: dict[str, Row[Any]] = {f"{kind} {name}": row for kind, table in KINDS.items() for name, row in table.items()}
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
examples = settings(max_examples=15, deadline=None, suppress_health_check=QUIET, print_blob=True)
few_examples = settings(max_examples=6, deadline=None, suppress_health_check=QUIET, print_blob=True)

SPLITTERS = {label for label, _, _ in variants(registry.SPLITTERS)}
"""Each splitter, with each of its forms."""

NEEDS_MINUTES = "Trim"
"""Decides by the samples of the last minutes, which drawn clusters lack; tests/strategies/trim has its own worlds."""

CALM = "LeastResourceUsageWithWeight"
"""A placement to try shedders with."""


@pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in strategy_checks()])
@examples
@given(cluster=clusters())
def test_strategy_keeps_the_rules(check: Callable[[ClusterLoad], None], cluster: ClusterLoad) -> None:
    check(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in pair_checks()])
@few_examples
@given(cluster=clusters())
def test_pair_keeps_the_rules(check: Callable[[ClusterLoad], None], cluster: ClusterLoad) -> None:
    check(cluster)


SPLITTING = [(name, check) for name, check in pair_checks() if name.partition("-")[0] in SPLITTERS]
"""The checks of pairs that have a splitter."""


@pytest.mark.slow
@pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in SPLITTING])
@examples
@given(cluster=crowded_clusters())
def test_pair_that_splits_keeps_the_rules(check: Callable[[ClusterLoad], None], cluster: ClusterLoad) -> None:
    """Of the clusters that `clusters` draws, few have a bundle that is split."""
    check(cluster)


def test_every_exception_names_a_check() -> None:
    checks = {name.rpartition("-")[2] for name, _ in strategy_checks()}

    assert {check for _, check in EXCEPTIONS} <= checks


@pytest.mark.parametrize(("name", "shedder"), [(label, made) for label, _, made in variants(registry.SHEDDERS)])
@examples
@given(load=odd_clusters())
def test_odd_numbers_never_break_a_shedder(name: str, shedder: Any, load: ClusterLoad) -> None:
    """Every bundle is offered, so that the odd ones are not left out before the strategy sees them."""
    memory: Any = {}
    for _ in range(3):
        shedding = shedder.shed(load, load.bundles.owner >= 0, memory)
        memory = shedding.memory
        assert shedding.unloads or shedding.held_back, name
        assert all((load.bundles.owner[u.bundles] == u.broker).all() for u in shedding.unloads), name


@pytest.mark.parametrize(("name", "placement"), [(label, made) for label, _, made in variants(registry.PLACEMENTS)])
@examples
@given(load=odd_clusters())
def test_odd_numbers_never_break_a_placement(name: str, placement: Any, load: ClusterLoad) -> None:
    candidates = np.arange(len(load.brokers))
    if len(candidates):
        chosen = placement.best(load, 0, candidates, {}).brokers
        assert len(chosen), name
        assert set(chosen.tolist()) <= set(candidates.tolist()), name


@pytest.mark.parametrize(("name", "splitter"), [(label, made) for label, _, made in variants(registry.SPLITTERS)])
@examples
@given(load=odd_clusters())
def test_odd_numbers_never_break_a_splitter(name: str, splitter: Any, load: ClusterLoad) -> None:
    splitting = splitter.split(load, np.ones(len(load.bundles), dtype=bool), {})
    assert splitting.proposed or splitting.held_back, name


@pytest.mark.parametrize("shedder", registry.SHEDDERS)
@examples
@given(load=odd_clusters())
def test_odd_numbers_end_in_a_plan_with_reasons(shedder: str, load: ClusterLoad) -> None:
    plan = decide(load, registry.pair(shedder, {}, CALM, {}), MoveLimits(), Memory(), np.random.default_rng(0)).plan
    assert plan.moves or plan.held_back
    assert all(isinstance(held.reason, Reason) for held in plan.held_back)


@pytest.mark.parametrize("placement", registry.PLACEMENTS)
@examples
@given(load=odd_clusters())
def test_odd_numbers_do_not_keep_a_bundle_without_owner(placement: str, load: ClusterLoad) -> None:
    made = assigned(load, np.arange(len(load.bundles)), placement)
    assert len(made) == (len(load.bundles) if len(load.brokers) else 0)


def assigned(load: ClusterLoad, bundles: IntArray, placement: str) -> list[str]:
    """Destinations of the bundles (rows) when all of them are given an owner."""
    strategy = registry.PLACEMENTS[placement].build(registry.PLACEMENTS[placement].params())
    rng = np.random.default_rng(0)
    decision = assign(load, bundles, strategy, MoveLimits(), Memory(), rng, Reason.UNOWNED)
    return [move.destination for move in decision.plan.moves]


@pytest.mark.parametrize("shedder", registry.SHEDDERS)
def test_a_broker_that_may_not_receive_gets_nothing(shedder: str) -> None:
    """The only idle brokers are closed, lost or not believed: whatever moves goes elsewhere."""
    hot = {"a": 0.99, "b": 0.95, "c": 0.3}
    load = cluster(
        bundles=6, closed=0.0, gone=0.0, odd=0.0, **hot, unschedulable=["closed"], lost=["gone"], untrusted=["odd"]
    )
    limits = MoveLimits(min_trusted_brokers=0.1, max_lost_brokers=0.9)
    memory, rng = Memory(), np.random.default_rng(0)
    for _ in range(10):
        decision = decide(load, registry.pair(shedder, {}, CALM, {}), limits, memory, rng)
        memory = decision.memory
        assert {move.destination for move in decision.plan.moves} <= {"a", "b", "c"}


def bounds() -> Iterator[Any]:
    """Every bound of every parameter: strategy, key, a value beyond it, and the bound as it is named."""
    for name, row in TABLES.items():
        for key, schema in row.params.model_json_schema()["properties"].items():
            for kind, step in (("minimum", -1), ("exclusiveMinimum", 0), ("maximum", 1), ("exclusiveMaximum", 0)):
                if kind in schema:
                    named = "0" if "pattern" in schema else f"{schema[kind]:.15g}"  # a quantity may be a fraction
                    yield pytest.param(name, key, schema[kind] + step, named, id=f"{name}-{key}-{kind}")


@pytest.mark.parametrize(("name", "key", "value", "bound"), list(bounds()))
def test_a_parameter_out_of_bounds_is_named_with_value_and_bound(name: str, key: str, value: float, bound: str) -> None:
    told = refusal(TABLES[name].params, name, {key: value})

    assert told.startswith(f"{name}: {key}: ")
    assert told.endswith(f"{bound} (got {value!r})")


@pytest.mark.parametrize("name", TABLES)
def test_no_number_may_be_nan_or_infinite(name: str) -> None:
    model = TABLES[name].params
    for key, schema in model.model_json_schema()["properties"].items():
        if schema.get("type") == "number":
            for value in (float("nan"), float("inf"), float("-inf")):
                assert key in refusal(model, name, {key: value})


def refusal(model: type[StrategyParams], name: str, given: dict[str, Any]) -> str:
    """What is said when these parameters are refused."""
    with pytest.raises(InvalidParamsError) as error:
        registry._params(name, model, given)
    return str(error.value)


HOT = cluster(
    bundles={"a": [9, 5, 3, 2, 1, 1], "b": [4, 3, 2, 1], "c": [1, 1], "d": [2, 1]}, a=0.99, b=0.9, c=0.05, d=0.1
)


@pytest.mark.parametrize(
    ("name", "shedder"),
    [(label, made) for label, _, made in variants(registry.SHEDDERS) if label != NEEDS_MINUTES],
)
def test_a_hot_broker_is_shed_from_within_the_rounds_that_are_checked(name: str, shedder: Shedder) -> None:
    """Else the rules above would be tried on nothing."""
    sources = {u.broker for _, shedding in sheddings(shedder, HOT, movable(HOT)) for u in shedding.unloads}

    assert HOT.brokers.index["a"] in sources, name


@pytest.mark.parametrize(
    ("name", "splitter"),
    [(label, made) for label, _, made in variants(registry.SPLITTERS) if label != NEEDS_MINUTES],
)
def test_a_large_bundle_is_split_within_the_rounds_that_are_checked(name: str, splitter: Splitter) -> None:
    load = with_topics(HOT)
    answers = splittings(splitter, load, np.ones(len(load.bundles), dtype=bool))

    assert any(split.bundle == 0 for _, splitting in answers for split in splitting.proposed), name


@pytest.mark.parametrize("name", sorted({*registry.SPLITTERS} - {NEEDS_MINUTES}))
def test_clusters_are_drawn_in_which_a_pair_splits(name: str) -> None:
    """Else the rules of pairs that split would be tried on nothing."""
    pair = replace(registry.pair("ThresholdShedder", {}, CALM, {}), splitter=registry.splitter(name, {}))
    drawing = settings(max_examples=100, database=None, suppress_health_check=QUIET, phases=[Phase.generate])

    find(
        crowded_clusters(),
        lambda drawn: any(plan.splits for _, plan in plans(pair, drawn, MoveLimits())),
        settings=drawing,
    )


@pytest.fixture(scope="module")
def huge() -> ClusterLoad:
    """300 brokers with 180,000 bundles."""
    return large(300, 600)


@pytest.mark.parametrize("shedder", registry.SHEDDERS)
def test_three_hundred_brokers_fit_in_memory(shedder: str, huge: ClusterLoad) -> None:
    """Peak of what a decision allocates, beside the picture itself."""
    pair = registry.pair(shedder, {}, CALM, {})
    memory, rng = Memory(), np.random.default_rng(0)
    tracemalloc.start()
    for _ in range(3):
        memory = decide(huge, pair, MoveLimits(), memory, rng).memory
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 200 * 2**20, f"{peak / 2**20:.0f} MiB"


@pytest.mark.slow
@pytest.mark.parametrize("splitter", registry.SPLITTERS)
def test_splitting_three_hundred_brokers_fits_in_memory(splitter: str, huge: ClusterLoad) -> None:
    pair = replace(registry.pair("ThresholdShedder", {}, CALM, {}), splitter=registry.splitter(splitter, {}))
    load = with_topics(huge)
    tracemalloc.start()
    decide(load, pair, MoveLimits(), Memory(), np.random.default_rng(0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 200 * 2**20, f"{peak / 2**20:.0f} MiB"


def with_topics(load: ClusterLoad) -> ClusterLoad:
    """The cluster with 2000 topics in every hundredth bundle; ten of those in the first are known."""
    first = parse_bundle(load.bundles.names[0])
    many = np.where(np.arange(len(load.bundles)) % 100 == 0, 2000.0, 1.0)
    known = Topics(
        names=tuple(f"persistent://{first.namespace}/topic-{k}" for k in range(10)),
        bundle=np.zeros(10, dtype=np.int64),
        place=np.linspace(first.lower, first.upper - 1, 10).astype(np.int64),
        traffic=np.tile(load.bundles.short[0] / 10, (10, 1)),
    )
    return replace(load, bundles=replace(load.bundles, topics=many), topics=known)
