"""What a split is judged by, gathered from the operator's picture."""

from __future__ import annotations

from trimtab_operator.actuators.split_steps import Raw
from trimtab_operator.control.context import Context
from trimtab_operator.control.divided import unborn
from trimtab_operator.control.split_orders import Around
from trimtab_strategies.splitting.limits import PulsarSplitParams, SplitLimits


def around(context: Context, parent: Raw | None) -> Around:
    """The surroundings of a bundle that is to be divided (None: there is none)."""
    stores = context.stores
    space = stores.topic_namespaces.items.get(parent["spec"]["topicNamespace"]) if parent is not None else None
    rules = split_rules(context)
    return Around(
        space=space,
        count=bundles_of(context, space.name) if space is not None else 0,
        bundles=stores.bundles.items.keys(),
        brokers=stores.brokers.items.keys(),
        most=min((rule.max_bundles for rule in rules), default=None),
        limits=rules[0] if rules else PulsarSplitParams(),
        topics=tuple(context.topics.values()),
    )


def split_rules(context: Context) -> list[SplitLimits]:
    """The parameters of the split rules of the policies that run."""
    rules = (settings.pair.splitter for settings in context.policies.values())
    found = (getattr(rule, "params", None) for rule in rules if rule is not None)
    return [params for params in found if isinstance(params, SplitLimits)]


def bundles_of(context: Context, space: str) -> int:
    """How many bundles a TopicNamespace object has, and will have once the splits under way are done."""
    bundles = context.stores.bundles.items
    now = sum(b.topic_namespace == space and not unborn(b, bundles) for b in bundles.values())
    begun = [r for r in context.stores.splits.items.values() if r.begun and r.status.topic_namespace == space]
    return now + sum(len(r.status.children) - 1 for r in begun if r.spec.bundle in bundles)
