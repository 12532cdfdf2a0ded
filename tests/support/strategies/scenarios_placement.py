"""Random scenarios of the modular load manager's placements: brokers, and the candidates of each step."""

from __future__ import annotations

from scenario_draws import BROKER_COUNTS, Draw, Fields

LAST_COUNT = 2**31 - 1


def _steps(draw: Draw, names: list[str], changes: list[Fields]) -> list[Fields]:
    """Candidates for each step, before which a few brokers may report something new."""
    steps = []
    for changed in changes:
        candidates = draw.subset(names, draw.pick(0, 1, len(names)))
        steps.append(({"set_brokers": changed} if changed else {}) | {"candidates": candidates})
    return steps


def least_resource_usage(draw: Draw) -> Fields:
    """``modular.LeastResourceUsageWithWeight``: brokers without bundles or traffic lose their history."""
    names = draw.broker_names(draw.choice(BROKER_COUNTS))

    def report() -> Fields:
        rates = {"msg_rate_in": draw.amount(1, 9000), "msg_rate_out": draw.amount(1, 9000)}
        idle = {"msg_rate_in": 0.0, "msg_rate_out": 0.0}
        bundles = [f"t/n/b{k}" for k in range(draw.pick(0, 1, 3, 3))]
        return {**draw.resources(draw.level()), **draw.pick(rates, rates, rates, idle), "bundles": bundles}

    conf = draw.weights() | draw.settings(
        0.5,
        loadBalancerAverageResourceUsageDifferenceThresholdPercentage=(0, 1, 5, 10, 30),
        loadBalancerHistoryResourcePercentage=(0.0, 0.5, 0.9, 1.0),
        loadBalancerBrokerOverloadedThresholdPercentage=(50, 85),
    )
    brokers = {name: report() for name in names}
    changes = [{name: report() for name in draw.some(names, draw.pick(0, 0.3))} for _ in range(draw.pick(1, 2, 4, 8))]
    return {"conf": conf, "brokers": brokers, "steps": _steps(draw, names, changes)}


def least_message_rate(draw: Draw) -> Fields:
    """``modular.LeastLongTermMessageRate``: equal rates, overloaded brokers, bundles that were just assigned."""
    names = draw.broker_names(draw.choice(BROKER_COUNTS))

    def report() -> Fields:
        rate = draw.pick(0.0, 100.0, 250.5, draw.amount(1, 20000), draw.amount(1, 20000))
        rates = {"long_term_msg_rate_in": rate, "long_term_msg_rate_out": draw.pick(0.0, rate, draw.amount(1, 9000))}
        promised = [[draw.amount(1, 500), draw.pick(0.0, 50.0)] for _ in range(draw.pick(0, 0, 0, 1, 3))]
        return {**draw.resources(draw.level()), **rates, **({"preallocated": promised} if promised else {})}

    conf = draw.weights() | draw.settings(0.5, loadBalancerBrokerOverloadedThresholdPercentage=(0, 30, 50, 85, 100))
    brokers = {name: report() for name in names}
    changes = [{name: report() for name in draw.some(names, 0.3)} for _ in range(draw.pick(1, 2, 3))]
    return {"conf": conf, "brokers": brokers, "steps": _steps(draw, names, changes)}


def round_robin(draw: Draw) -> Fields:
    """``modular.RoundRobinBrokerSelector``: the set of candidates changes, also to another of the same size."""
    names = draw.broker_names(draw.randint(2, 8))
    candidates, steps = draw.subset(names), []
    for _ in range(draw.randint(2, 20)):
        if draw.chance(0.25):
            candidates = draw.pick(draw.subset(names), draw.sample(names, len(candidates)), [])
        steps.append({"candidates": candidates})
    start = draw.pick(0, 0, 1, draw.randrange(1000), LAST_COUNT - draw.randrange(6))
    return {"conf": {}, "brokers": {}, "start_count": start, "steps": steps}


def resource_usage(draw: Draw) -> Fields:
    """``base.resource_usage``: the arithmetic of one broker's resources."""
    return {"conf": draw.weights(), "usage": draw.resources(draw.level())}
