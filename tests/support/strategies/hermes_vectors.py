"""The hand-made cases of Hermes' balancers in the repository, converted to our types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from conformance.hermes_model import Rules
from trimtab_strategies.shedding.weighted.nodes import NEVER, UNDEFINED, Constraints, NodeLoad, Profile, Workload
from trimtab_strategies.shedding.weighted.orders import Iteration
from trimtab_strategies.shedding.weighted.target_weights import Law, TargetRule

PATH = Path(__file__).parents[2] / "conformance" / "hermes" / "hand-made.yaml"
VECTORS: dict[str, Any] = yaml.load(PATH.read_text(), Loader=yaml.CSafeLoader)
BALANCES: list[dict[str, Any]] = [
    case
    for kind in ("weighted_balancer_upstream", "weighted_balancer_extra", "weighted_balancer_random")
    for case in VECTORS[kind]
]


def instant(given: float | None) -> float:
    """A time (ms); None means never."""
    return NEVER if given is None else given


def loads(given: Mapping[str, Any]) -> dict[str, NodeLoad]:
    """Reports of consumers: ``{cpu, subs: {subscription: ops}}``."""
    return {name: NodeLoad(UNDEFINED if of["cpu"] is None else of["cpu"], of["subs"]) for name, of in given.items()}


def work(given: Mapping[str, Any]) -> Workload:
    """The input of one balance."""
    return Workload(
        now=given["now"],
        subscriptions=given["subscriptions_in_order"],
        consumers=given["consumers_in_order"],
        constraints=Constraints(
            active=given["active_consumers_in_constraints"],
            per_subscription=given["consumers_per_subscription"],
            most=given["max_subscriptions_per_consumer"],
            of_subscription=given.get("subscription_constraints", {}),
            of_topic=given.get("topic_constraints", {}),
        ),
        holders=given["current_assignments"],
        profiles={name: Profile(of["weight"], instant(of["last_rebalance"])) for name, of in given["profiles"].items()},
        loads=loads(given.get("loads", {})),
    )


def rules(given: Mapping[str, Any], iteration: Iteration) -> Rules:
    """Hermes' rules with the settings of a case."""
    return Rules(
        stabilization=given["stabilization_ms"],
        min_change=given["min_change_percent"],
        targets=TargetRule(
            law=Law.SCORING if given["target_strategy"] == "scoring" else Law.AVERAGE,
            gain=given.get("scoring_gain", given.get("gain", 1.0)),
            window=given.get("scoring_window_ms", given.get("window_ms", 900_000)),
            iteration=iteration,
        ),
        iteration=iteration,
    )
