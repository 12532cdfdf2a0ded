"""What the disruption budgets of a policy have left now, which bundles that keeps where they are, and why, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.resources.policy import Mode
from trimtab_operator.state.budget_prices import UNKNOWN_PRICE, Prices
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings
from trimtab_strategies.budget import NO_BUDGET, TINY, BudgetLimit, BudgetRules, BudgetTally, Holder, Shortfall
from trimtab_strategies.model import ClusterLoad, Reason


def rules_of(cluster: ClusterState, settings: Settings) -> BudgetRules:
    """The budgets that hold for the bundles of a policy."""
    spaces = {
        space.full_name: Holder(f"TopicNamespace {space.name}", space.budget)
        for space in cluster.stores.topic_namespaces.items.values()
        if space.budget != NO_BUDGET
    }
    own = NO_BUDGET if settings.budget is None else settings.budget.bounds
    return BudgetRules(settings.name, Holder(f"policy {settings.name}", own), spaces)


def full_name(cluster: ClusterState, record: BundleRecord) -> str:
    """A bundle in Pulsar's spelling; empty if its TopicNamespace is unknown."""
    space = cluster.stores.topic_namespaces.items.get(record.topic_namespace)
    return "" if space is None else f"{space.full_name}/{record.lower}_{record.upper}"


def pending_by_namespace(cluster: ClusterState, written: Iterable[str] = ()) -> dict[str, frozenset[str]]:
    """Names of the bundles with a pending move, by ``tenant/name``.

    written: bundles whose move was written, while the store may not show it yet.
    """
    bundles, spaces = cluster.stores.bundles.items, cluster.stores.topic_namespaces.items
    moving = {name for name, move in cluster.pending_moves.open.items() if move.source != move.destination}
    found = dict[str, set[str]]()
    for name in moving.union(written):
        record = bundles.get(name)
        space = spaces.get(record.topic_namespace) if record is not None else None
        if space is not None:
            found.setdefault(space.full_name, set()).add(name)
    return {space: frozenset(names) for space, names in found.items()}


async def recalled(cluster: ClusterState) -> None:
    """Read the account, unless that was done. Raises `ApiError`."""
    await cluster.budget.recall(cluster.api, cluster.namespace, cluster.process.epoch)


def tally_of(cluster: ClusterState, rules: BudgetRules, written: Iterable[str] = ()) -> BudgetTally:
    """What the budgets of `rules` have left now. written: as in `pending_by_namespace`. Call `recalled` before."""
    return BudgetTally(rules, cluster.budget.ledger, cluster.now(), pending_by_namespace(cluster, written))


async def without_budget(
    cluster: ClusterState, settings: Settings, load: ClusterLoad, records: Mapping[str, BundleRecord]
) -> dict[str, Reason]:
    """The bundles of `load` that no budget would let move now, so that a plan need not consist of them.

    records: by Pulsar's spelling. Notes the prices of the policy's moves. Raises `ApiError`.
    """
    rules = rules_of(cluster, settings)
    if rules.empty or settings.mode is Mode.SHADOW:
        cluster.budget.prices.pop(settings.name, None)
        return {}
    if rules.over_time:
        await recalled(cluster)
    prices = Prices.of(load, cluster.move_costs())
    cluster.budget.prices[settings.name] = prices
    tally = tally_of(cluster, rules)
    held = _too_dear(tally, prices)
    names = load.bundles.names
    found = {names[row]: Reason.DISRUPTION_BUDGET for row in np.flatnonzero(held).tolist()}
    if rules.bounds(BudgetLimit.BUNDLE_MOVES):
        by_name = {record.name: bundle for bundle, record in records.items() if record.name in tally.ledger.days}
        for name, bundle in by_name.items():
            if tally.shortfall(name, bundle.rpartition("/")[0], prices.price(bundle), dated=False) is not None:
                found[bundle] = Reason.DISRUPTION_BUDGET
    return found


def _too_dear(tally: BudgetTally, prices: Prices) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The bundles (mask, m) that cost more than is left, or whose namespace has no pending move left."""
    rules, spaces = tally.rules, prices.namespaces
    left, pending = np.full(len(spaces), np.inf), np.zeros(len(spaces), dtype=bool)
    for row, space in enumerate(spaces):
        holder = rules.spaces.get(space)
        if holder is not None and holder.budget.connections is not None:
            left[row] = holder.budget.connections - tally.clients_of(space)
        flights = rules.stricter(space, BudgetLimit.IN_FLIGHT)
        gap = rules.stricter(space, BudgetLimit.PUBLISH_GAP)
        full = flights is not None and len(tally.pending_of(space)) >= flights[0]
        pending[row] = full or (gap is not None and not prices.gaps[space] <= gap[0] - tally.gaps_of(space) + TINY)
    bounded = np.isfinite(left)[prices.namespace]
    held = pending[prices.namespace] | (bounded & ~(prices.of_namespace <= left[prices.namespace] + TINY))
    if (own := rules.own.budget.connections) is not None:
        held = held | ~(prices.of_policy <= own - tally.clients_of_policy() + TINY)
    return np.asarray(held)


def in_words(short: Shortfall, now: float) -> str:
    """The budget, its bound, what is spent, what the move costs, and when it fits."""
    unit = _UNITS[short.limit]
    head = f"{short.limit} of {short.holder} is {short.bound:g}"
    if short.limit is BudgetLimit.IN_FLIGHT:
        return f"{head}, and {short.spent:g} are pending: it waits until one lands"
    if math.isnan(short.price):
        return f"{head}, and {_UNMEASURED[short.limit]}"
    if short.price > short.bound:
        return f"{head}{unit}, and this move alone costs {short.price:.3g}{unit}: it never fits, raise the budget"
    when = "" if short.frees_at is None else f": it fits from {timestamp(max(now, short.frees_at) + 1)} on"
    cost = "" if short.limit is BudgetLimit.BUNDLE_MOVES else f" and it costs {short.price:.3g}{unit}"
    return f"{head}{unit}, {short.spent:.3g}{unit} spent{cost}{when}"


_UNITS = {
    BudgetLimit.CONNECTIONS: " %",
    BudgetLimit.PUBLISH_GAP: " s",
    BudgetLimit.BUNDLE_MOVES: "",
    BudgetLimit.IN_FLIGHT: "",
}

_UNMEASURED = {
    BudgetLimit.CONNECTIONS: "the connections of the bundle were not measured",
    BudgetLimit.PUBLISH_GAP: "nothing measures publish gaps without spec.pulsar",
}


def why_withheld(cluster: ClusterState, settings: Settings, tally: BudgetTally, bundle: str, name: str) -> str:
    """Why the bundle `name` (in Pulsar's spelling `bundle`) may not move now by `tally`; empty if it may."""
    space = bundle.rpartition("/")[0]
    prices = cluster.budget.prices.get(settings.name)
    short = tally.shortfall(name, space, UNKNOWN_PRICE if prices is None else prices.price(bundle))
    return "" if short is None else in_words(short, cluster.now())
