"""All strategies, in tables. A new strategy needs a module, a row here, and an example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from trimtab_strategies.filters import BrokerSelection, Manager, SelectionParams
from trimtab_strategies.params import Defect, StrategyParams
from trimtab_strategies.placement.least_message_rate import LeastLongTermMessageRate, LeastLongTermMessageRateParams
from trimtab_strategies.placement.least_resource_usage import (
    ExtensibleLeastResourceUsageWithWeight,
    ExtensibleLeastResourceUsageWithWeightParams,
    LeastResourceUsageWithWeight,
    LeastResourceUsageWithWeightParams,
)
from trimtab_strategies.placement.round_robin import RoundRobin, RoundRobinParams
from trimtab_strategies.planner.decide import Pair
from trimtab_strategies.protocols import Placement, Shedder, Splitter
from trimtab_strategies.shedding import avg, overload, threshold, uniform
from trimtab_strategies.shedding.transfer import shedder
from trimtab_strategies.shedding.trim.place import TrimPlacement, TrimPlacementParams
from trimtab_strategies.shedding.trim.shedder import Trim, TrimParams
from trimtab_strategies.shedding.trim.split import TrimSplitter, TrimSplitterParams
from trimtab_strategies.shedding.weighted import shedder as weighted_balancer
from trimtab_strategies.splitting import bundle_splitter_task, namespace_bundle_split, weighted
from trimtab_strategies.usage import DEFAULT_WEIGHTS

Strategy = TypeVar("Strategy", Shedder, Placement, Splitter, BrokerSelection)

_PULSAR = "org.apache.pulsar.broker.loadbalance"


class UnknownStrategyError(ValueError):
    """An unknown strategy name. The message lists the known ones."""


class InvalidParamsError(ValueError):
    """Parameters that a strategy refuses. The message names each field, its value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Row(Generic[Strategy]):
    """One strategy: its parameters, its constructor, a summary in one sentence, and the original's class.

    defects: those of the original. The parameter `compatibility` keeps or fixes them.
    """

    params: type[StrategyParams]
    build: Callable[[Any], Strategy]
    summary: str
    original: str
    defects: tuple[Defect, ...] = ()


SHEDDERS: Mapping[str, Row[Shedder]] = {
    "Trim": Row(
        params=TrimParams,
        build=Trim,
        summary="The last minutes are replayed with the current owners, and only moves worth their price are made.",
        original="",
    ),
    "ThresholdShedder": Row(
        params=threshold.ThresholdShedderParams,
        build=threshold.ThresholdShedder,
        summary="Brokers whose smoothed usage is well above the average give their busiest bundles away.",
        original=f"{_PULSAR}.impl.ThresholdShedder",
        defects=threshold.DEFECTS,
    ),
    "OverloadShedder": Row(
        params=overload.OverloadShedderParams,
        build=overload.OverloadShedder,
        summary="Brokers above a fixed limit give their busiest bundles away, regardless of the load of the others.",
        original=f"{_PULSAR}.impl.OverloadShedder",
        defects=overload.DEFECTS,
    ),
    "UniformLoadShedder": Row(
        params=uniform.UniformLoadShedderParams,
        build=uniform.UniformLoadShedder,
        summary="The broker with the most messages or bytes gives away a share of its lead over the least busy one.",
        original=f"{_PULSAR}.impl.UniformLoadShedder",
        defects=uniform.DEFECTS,
    ),
    "AvgShedder": Row(
        params=avg.AvgShedderParams,
        build=avg.AvgShedder,
        summary="After some cycles the busiest broker gives bundles to the idlest, the second to the second idlest.",
        original=f"{_PULSAR}.impl.AvgShedder",
        defects=avg.DEFECTS,
    ),
    "WeightedBalancer": Row(
        params=weighted_balancer.WeightedBalancerParams,
        build=weighted_balancer.WeightedBalancer,
        summary="Brokers above a target weight, learned from usage, give bundles to those below, or swap with them.",
        original="pl.allegro.tech.hermes.consumers.supervisor.workload.weighted.WeightedWorkBalancer",
        defects=weighted_balancer.DEFECTS,
    ),
    "TransferShedder": Row(
        params=shedder.TransferShedderParams,
        build=shedder.TransferShedder,
        summary="The most used broker gives bundles directly to the least used one, and may take smaller ones back.",
        original=f"{_PULSAR}.extensions.scheduler.TransferShedder",
        defects=shedder.DEFECTS,
    ),
}

PLACEMENTS: Mapping[str, Row[Placement]] = {
    "Trim": Row(
        params=TrimPlacementParams,
        build=TrimPlacement,
        summary="The broker whose busiest resource stays least used.",
        original="",
    ),
    "LeastResourceUsageWithWeight": Row(
        params=LeastResourceUsageWithWeightParams,
        build=LeastResourceUsageWithWeight,
        summary="A random broker of those clearly below the average; usage is smoothed each time a bundle is placed.",
        original=f"{_PULSAR}.impl.LeastResourceUsageWithWeight",
    ),
    "ExtensibleLeastResourceUsageWithWeight": Row(
        params=ExtensibleLeastResourceUsageWithWeightParams,
        build=ExtensibleLeastResourceUsageWithWeight,
        summary="A random broker of those clearly below the average; usage is smoothed once a cycle.",
        original=f"{_PULSAR}.extensions.strategy.LeastResourceUsageWithWeight",
    ),
    "LeastLongTermMessageRate": Row(
        params=LeastLongTermMessageRateParams,
        build=LeastLongTermMessageRate,
        summary="The broker with the fewest messages over a long time, unless it is overloaded.",
        original=f"{_PULSAR}.impl.LeastLongTermMessageRate",
    ),
    "RoundRobin": Row(
        params=RoundRobinParams,
        build=RoundRobin,
        summary="One broker after the other, regardless of their load.",
        original=f"{_PULSAR}.impl.RoundRobinBrokerSelector",
    ),
    "AvgShedder": Row(
        params=avg.AvgShedderPlacementParams,
        build=avg.AvgShedderPlacement,
        summary="The broker that this strategy has noted for the bundle, else any broker, which it then notes.",
        original=f"{_PULSAR}.impl.AvgShedder",
        defects=avg.PLACEMENT_DEFECTS,
    ),
}


SPLITTERS: Mapping[str, Row[Splitter]] = {
    "Trim": Row(
        params=TrimSplitterParams,
        build=TrimSplitter,
        summary="Bundles that no broker can take whole are split by their topics' load, and spread in the same plan.",
        original="",
    ),
    "BundleSplitterTask": Row(
        params=bundle_splitter_task.BundleSplitterTaskParams,
        build=bundle_splitter_task.BundleSplitterTask,
        summary="Every bundle above a limit is halved in the same cycle if its namespace has fewer than `maxBundles`.",
        original=f"{_PULSAR}.impl.BundleSplitterTask",
        defects=bundle_splitter_task.DEFECTS,
    ),
    "DefaultNamespaceBundleSplitStrategy": Row(
        params=namespace_bundle_split.DefaultNamespaceBundleSplitStrategyParams,
        build=namespace_bundle_split.DefaultNamespaceBundleSplitStrategy,
        summary="Bundles that exceed a limit for some cycles are halved, a few per broker and cycle.",
        original=f"{_PULSAR}.extensions.strategy.DefaultNamespaceBundleSplitStrategyImpl",
        defects=namespace_bundle_split.DEFECTS,
    ),
    "WeightedSplitter": Row(
        params=weighted.WeightedSplitterParams,
        build=weighted.WeightedSplitter,
        summary="Bundles that stay too large are split by the load of their topics, and spread in the same plan.",
        original="",
    ),
}

SELECTIONS: Mapping[str, Row[BrokerSelection]] = {
    "Extensible": Row(
        params=SelectionParams,
        build=lambda params: BrokerSelection(Manager.EXTENSIBLE, params),
        summary="A broker must pass every filter. A bundle that no broker may have stays where it is.",
        original=f"{_PULSAR}.extensions.ExtensibleLoadManagerImpl",
    ),
    "Modular": Row(
        params=SelectionParams,
        build=lambda params: BrokerSelection(Manager.MODULAR, params, RoundRobin(RoundRobinParams())),
        summary="Filters that leave no broker are ignored. If the chosen broker is overloaded, more brokers are tried.",
        original=f"{_PULSAR}.impl.ModularLoadManagerImpl",
    ),
}


def pair(
    shedder: str,
    shedder_params: Mapping[str, Any] | StrategyParams,
    placement: str,
    placement_params: Mapping[str, Any] | StrategyParams,
) -> Pair:
    """A pair of strategies by name. Raises `UnknownStrategyError` or `InvalidParamsError`."""
    shedding, placing = _row("shedder", SHEDDERS, shedder), _row("placement", PLACEMENTS, placement)
    tuned = _params(shedder, shedding.params, shedder_params)
    return Pair(
        shedder=shedding.build(tuned),
        placement=placing.build(_params(placement, placing.params, placement_params)),
        weights=getattr(tuned, "weights", DEFAULT_WEIGHTS),
    )


def splitter(name: str, params: Mapping[str, Any] | StrategyParams) -> Splitter:
    """A splitter by name. Raises `UnknownStrategyError` or `InvalidParamsError`."""
    row = _row("splitter", SPLITTERS, name)
    return row.build(_params(name, row.params, params))


def selection(name: str, params: Mapping[str, Any] | StrategyParams) -> BrokerSelection:
    """The filters before the placement, by name. Raises `UnknownStrategyError` or `InvalidParamsError`."""
    row = _row("selection", SELECTIONS, name)
    return row.build(_params(name, row.params, params))


def _row(kind: str, table: Mapping[str, Row[Strategy]], name: str) -> Row[Strategy]:
    if name not in table:
        raise UnknownStrategyError(f"{kind} {name!r} is unknown, use one of {', '.join(sorted(table))}")
    return table[name]


def _params(name: str, model: type[StrategyParams], given: Mapping[str, Any] | StrategyParams) -> StrategyParams:
    values = given.model_dump(by_alias=True) if isinstance(given, StrategyParams) else dict(given)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, e['loc']))}: {e['msg']} (got {e['input']!r:.80})" for e in error.errors())
        raise InvalidParamsError(f"{name}: {'; '.join(problems)}") from error
