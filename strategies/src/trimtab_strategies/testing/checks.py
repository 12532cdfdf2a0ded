"""Every check of every strategy in the registry: plain functions of a cluster that raise AssertionError."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pydantic import ValidationError

from trimtab_strategies import registry
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.params import Compatibility, StrategyParams
from trimtab_strategies.protocols import Placement, Shedder, Splitter
from trimtab_strategies.registry import Row
from trimtab_strategies.testing.pair_checks import PAIR_CHECKS
from trimtab_strategies.testing.placement_checks import PLACEMENT_CHECKS
from trimtab_strategies.testing.shedder_checks import SHEDDER_CHECKS
from trimtab_strategies.testing.splitter_checks import SPLITTER_CHECKS

Strategy = TypeVar("Strategy", Shedder, Placement, Splitter)
Subject = TypeVar("Subject")
Check = tuple[str, Callable[[ClusterLoad], None]]

EXCEPTIONS: Mapping[tuple[str, str], str] = {
    ("OverloadShedder", "level_cluster_is_left_alone"): "its bound is absolute: when all are overloaded, all shed",
    ("WeightedBalancer[java]", "level_cluster_is_left_alone"): "it also evens out the numbers of bundles",
}
"""Rules that a strategy (or one form of it) breaks because the original does: strategy and check, and why."""


def variants(table: Mapping[str, Row[Strategy]]) -> Iterator[tuple[str, str, Strategy]]:
    """Each strategy with its default parameters, and with every value of `compatibility` it has: id, name, strategy."""
    for name, row in table.items():
        for label, params in parameter_sets(row.params):
            yield f"{name}{label}", name, row.build(params)


def parameter_sets(model: type[StrategyParams]) -> Iterator[tuple[str, StrategyParams]]:
    """A label and parameters: ``""`` and the defaults, or one for each value of `compatibility`."""
    if "compatibility" not in model.model_fields:
        yield "", model()
        return
    for value in Compatibility:
        yield f"[{value}]", model.model_validate({"compatibility": value})


def strategy_checks() -> Iterator[Check]:
    """Every check of every strategy in the registry: an id, and a function of a cluster."""
    for kind in (registry.SHEDDERS, registry.PLACEMENTS, registry.SPLITTERS):
        for name, row in kind.items():
            yield f"{name}-{parameters_are_checked.__name__}", partial(parameters_are_checked, row.params)
    yield from _checked(variants(registry.SHEDDERS), SHEDDER_CHECKS)
    yield from _checked(variants(registry.PLACEMENTS), PLACEMENT_CHECKS)
    yield from _checked(variants(registry.SPLITTERS), SPLITTER_CHECKS)


def pair_checks() -> Iterator[Check]:
    """Every check of every pair of a shedder and a placement with their default parameters, and of every splitter."""
    for shedder in registry.SHEDDERS:
        for placement in registry.PLACEMENTS:
            pair = registry.pair(shedder, {}, placement, {})
            yield from _checked([(f"{shedder}-{placement}", shedder, pair)], PAIR_CHECKS)
    pair = registry.pair("ThresholdShedder", {}, "LeastResourceUsageWithWeight", {})
    for label, name, splitter in variants(registry.SPLITTERS):
        yield from _checked([(label, name, replace(pair, splitter=splitter))], PAIR_CHECKS)


def _checked(
    subjects: Iterable[tuple[str, str, Subject]], checks: tuple[Callable[[Subject, ClusterLoad], None], ...]
) -> Iterator[Check]:
    for label, name, subject in subjects:
        for check in checks:
            if not {(name, check.__name__), (label, check.__name__)} & EXCEPTIONS.keys():
                yield f"{label}-{check.__name__}", partial(check, subject)


def parameters_are_checked(params: type[StrategyParams], _: ClusterLoad) -> None:
    """Defaults are valid, an unknown parameter is refused by its name, and parameters can't be changed."""
    tuned = params()
    assert params.model_validate(tuned.model_dump(by_alias=True)) == tuned
    assert _refused(lambda: params.model_validate({"noSuchKey": 1})) == "noSuchKey"
    for field in params.model_fields:
        assert _refused(partial(setattr, tuned, field, 1)) == field


def _refused(change: Callable[[], object]) -> str:
    """The parameter that is refused, empty when nothing is."""
    try:
        change()
    except ValidationError as problem:
        return str(problem.errors()[0]["loc"][0])
    return ""
