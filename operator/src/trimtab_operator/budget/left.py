"""What the disruption budgets of a policy have left, and which bundles may therefore not move now, with the reason."""

from __future__ import annotations

import math
from collections.abc import Iterable

from trimtab_operator.budget.prices import UNKNOWN_PRICE, Prices, too_dear
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings
from trimtab_strategies.budget import NO_BUDGET, BudgetLimit, BudgetRules, BudgetTally, Holder, Shortfall
from trimtab_strategies.model import ClusterLoad, Reason


def rules_of(cluster: ClusterState, settings: Settings) -> BudgetRules:
    """The budgets that apply to the bundles of a policy."""
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

    written: bundles whose move was written, but which the store may not show yet.
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
    """Read the account, unless it was read before. Raises `ApiError`."""
    await cluster.budget.recall(cluster.api, cluster.namespace, cluster.process.epoch)


def tally_of(cluster: ClusterState, rules: BudgetRules, written: Iterable[str] = ()) -> BudgetTally:
    """What the budgets of `rules` have left now. written: as in `pending_by_namespace`. Call `recalled` before."""
    return BudgetTally(rules, cluster.budget.ledger, cluster.now(), pending_by_namespace(cluster, written))


async def without_budget(cluster: ClusterState, settings: Settings, load: ClusterLoad) -> dict[str, Reason]:
    """The bundles of `load` that a budget keeps from moving now, so that a plan can leave them out.

    The function also stores the prices of the policy's moves, for `admit`. Raises `ApiError`.
    """
    rules = rules_of(cluster, settings)
    if rules.empty:
        cluster.budget.prices.pop(settings.name, None)
        return {}
    if rules.over_time:
        await recalled(cluster)
    prices = Prices.of(load)
    cluster.budget.prices[settings.name] = prices
    return dict.fromkeys(too_dear(tally_of(cluster, rules), prices), Reason.DISRUPTION_BUDGET)


def in_words(short: Shortfall, now: float) -> str:
    """A text that names the budget, its bound, what is spent, what the move costs, and when it fits."""
    head = f"{short.limit} of {short.holder} is {short.bound:g}"
    if short.limit is BudgetLimit.IN_FLIGHT:
        return f"{head}, and {short.spent:g} are pending: it waits until one lands"
    if math.isnan(short.price):
        return f"{head}, and the connections of the bundle were not measured"
    if short.price > short.bound:
        return f"{head} %, and this move alone costs {short.price:.3g} %: it never fits, raise the budget"
    when = "" if short.frees_at is None else f": it fits from {timestamp(max(now, short.frees_at) + 1)} on"
    return f"{head} %, {short.spent:.3g} % spent and it costs {short.price:.3g} %{when}"


def why_withheld(cluster: ClusterState, settings: Settings, tally: BudgetTally, bundle: str, name: str) -> str:
    """Why the bundle `name` (in Pulsar's spelling `bundle`) may not move now according to `tally`; empty if it may."""
    space = bundle.rpartition("/")[0]
    prices = cluster.budget.prices.get(settings.name)
    short = tally.shortfall(name, space, UNKNOWN_PRICE if prices is None else prices.price(bundle))
    return "" if short is None else in_words(short, cluster.now())
