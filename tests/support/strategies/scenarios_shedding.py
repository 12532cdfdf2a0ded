"""Random scenarios of the modular load manager's shedders: a cluster, and its changes from round to round."""

from __future__ import annotations

from collections.abc import Callable

from scenario_draws import BROKER_COUNTS, Draw, Fields, totals

MONITORING = ("pulsar/{}", "sla-monitor/{}")


class Cluster:
    """A modular cluster that is being drawn: owners of bundles, their traffic, and the fields of a scenario."""

    def __init__(self, draw: Draw, *, counts: tuple[int, ...] = BROKER_COUNTS, busiest: int = 14) -> None:
        self.draw = draw
        names = draw.broker_names(draw.choice(counts))
        at_once = 60 if len(names) < 4 and draw.chance(0.1) else min(busiest, 120 // max(len(names), 1))
        many = {name: draw.choice((0, 1, 2, 3, draw.randint(2, max(at_once, 2)))) for name in names}
        bundles = draw.bundle_names(sum(many.values()))
        draw.shuffle(bundles)
        self.owned: dict[str, list[str]] = {name: [bundles.pop() for _ in range(many[name])] for name in names}
        hot = {name: draw.pick(1.0, 1.0, 1.0, 4.0, 20.0) for name in names}
        self.traffic = {bundle: draw.traffic(scale=hot[name]) for name, own in self.owned.items() for bundle in own}
        self._equal_values()
        self._odd_bundles()
        self.brokers = {name: self.report(name) for name in names}

    def _equal_values(self) -> None:
        if self.traffic and self.draw.chance(0.06):
            one = self.draw.choice(list(self.traffic.values()))
            self.traffic.update(dict.fromkeys(self.draw.some(list(self.traffic), 0.3), one))

    def _odd_bundles(self) -> None:
        """Unowned bundles, bundles never averaged, and a broker's own heartbeat."""
        draw = self.draw
        if draw.chance(0.3):
            self.traffic["t/unowned/0x00000000_0xffffffff"] = draw.traffic()
        self.unmeasured = draw.some(list(self.traffic), 0.3) if draw.chance(0.15) else []
        if self.owned and draw.chance(0.15):
            name = draw.choice(list(self.owned))
            heartbeat = f"{draw.choice(MONITORING).format(name)}/0x00000000_0xffffffff"
            self.owned[name].append(heartbeat)
            self.traffic[heartbeat] = draw.traffic(scale=100)

    def report(self, name: str) -> Fields:
        """What a broker reports: its resources, its bundles, and totals that are nearly the sums over them."""
        draw = self.draw
        sums = totals([self.traffic[bundle] for bundle in self.owned[name]])
        off = draw.pick(1.0, 1.0, 1.0, draw.uniform(0.5, 2), 0.0)
        rates = {key: round(value * off, 6) for key, value in sums.items()}
        return {**draw.resources(draw.level()), "bundles": list(self.owned[name]), **rates}

    def known_bundles(self) -> dict[str, Fields]:
        """The bundles with averaged data."""
        return {bundle: values for bundle, values in self.traffic.items() if bundle not in self.unmeasured}

    def next_round(self) -> Fields:
        """What the next round changes: loads, ownership, brokers, and which bundles are in their grace period."""
        draw, step = self.draw, Fields()
        removed = draw.some(list(self.owned), 0.3) if draw.chance(0.1) else []
        orphans = [bundle for name in removed for bundle in self.owned.pop(name)]
        if removed:
            step["remove_brokers"] = removed
        changed = draw.some(list(self.owned), draw.pick(0.0, 0.3, 1.0))
        if orphans and self.owned and draw.chance(0.7):
            changed.append(self._adopt(orphans))
        if draw.chance(0.1):
            changed.append(self._join(orphans))
        if len(self.owned) > 1 and draw.chance(0.3):
            changed += self._move()
        fresh = draw.some(list(self.traffic), 0.4) if draw.chance(0.3) else []
        self.traffic.update({bundle: draw.traffic(scale=draw.pick(0.2, 1.0, 5.0)) for bundle in fresh})
        if fresh:
            step["set_bundles"] = {bundle: self.traffic[bundle] for bundle in fresh}
        if changed:
            step["set_brokers"] = {name: self._changes(name) for name in dict.fromkeys(changed) if name in self.owned}
        if draw.chance(0.4):
            step["recently_unloaded"] = draw.some([*self.traffic, "t/gone/0x00000000_0xffffffff"], draw.pick(0.1, 0.6))
        if draw.chance(0.1):
            step["notify_active"] = True
        return step

    def _changes(self, name: str) -> Fields:
        report = self.report(name)
        if self.draw.chance(0.3):
            return {key: report[key] for key in report if key.startswith(("cpu", "bundles"))}
        return report

    def _adopt(self, orphans: list[str]) -> str:
        name = self.draw.choice(list(self.owned))
        self.owned[name] += orphans
        orphans.clear()
        return name

    def _join(self, orphans: list[str]) -> str:
        name = f"newcomer-{len(self.owned)}:8080"
        self.owned[name] = list(orphans)
        orphans.clear()
        return name

    def _move(self) -> list[str]:
        source, target = self.draw.sample(list(self.owned), 2)
        moving = self.draw.some(self.owned[source], 0.3)
        self.owned[source] = [bundle for bundle in self.owned[source] if bundle not in moving]
        self.owned[target] += moving
        return [source, target]


def shedding(settings: Callable[[Draw], Fields], draw: Draw) -> Fields:
    """A scenario of a shedder with these settings."""
    cluster = Cluster(draw)
    scenario = {"conf": settings(draw), "brokers": cluster.brokers, "bundles": cluster.known_bundles()}
    rounds = [Fields()] + [cluster.next_round() for _ in range(draw.pick(0, 0, 1, 2, 4))]
    if draw.chance(0.3):
        rounds[0]["recently_unloaded"] = draw.some(list(cluster.traffic), 0.3)
    return {**scenario, "rounds": rounds}


def threshold(draw: Draw) -> Fields:
    """Settings of ThresholdShedder."""
    return draw.weights() | draw.settings(
        0.5,
        loadBalancerBrokerThresholdShedderPercentage=(0, 1, 5, 10, 20),
        loadBalancerHistoryResourcePercentage=(0.0, 0.5, 0.9, 1.0),
        loadBalancerBundleUnloadMinThroughputThreshold=(0.0, 0.0, 0.5, 10.0),
        lowerBoundarySheddingEnabled=(True, True, False),
    )


def overload(draw: Draw) -> Fields:
    """Settings of OverloadShedder."""
    return draw.weights() | draw.settings(0.5, loadBalancerBrokerOverloadedThresholdPercentage=(0, 30, 50, 70, 95))


def uniform(draw: Draw) -> Fields:
    """Settings of UniformLoadShedder."""
    return draw.settings(
        0.5,
        loadBalancerMsgRateDifferenceShedderThreshold=(0.0, 5.0, 20.0, 50.0, 1e9),
        loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold=(0.0, 1.1, 2.0, 4.0, 1e9),
        maxUnloadPercentage=(0.05, 0.2, 0.5, 1.0),
        maxUnloadBundleNumPerShedding=(-1, 0, 1, 2, 5),
        minUnloadMessage=(0, 1, 100, 1000),
        minUnloadMessageThroughput=(0, 1, 10000, 1048576),
    )


def average(draw: Draw) -> Fields:
    """Settings of AvgShedder. With most of them it acts within the few rounds of a scenario."""
    quick = {"loadBalancerAvgShedderHitCountLowThreshold": draw.pick(0, 1, 2, 3)} if draw.chance(0.8) else {}
    return (
        draw.weights()
        | draw.settings(
            0.6,
            loadBalancerAvgShedderLowThreshold=(0, 1, 5, 15),
            loadBalancerAvgShedderHighThreshold=(15, 20, 40),
            loadBalancerAvgShedderHitCountHighThreshold=(0, 1, 2),
            maxUnloadPercentage=(0.05, 0.2, 0.5, 1.0),
            minUnloadMessage=(0, 1, 100, 1000),
            minUnloadMessageThroughput=(0, 1, 10000, 1048576),
        )
        | quick
    )


def average_placement(draw: Draw) -> Fields:
    """A scenario of AvgShedder's placement: unloaded and other bundles; candidates may lack the planned broker."""
    cluster = Cluster(draw, counts=(1, 2, 2, 3, 4, 5, 6), busiest=6)
    conf = average(draw) | {"loadBalancerAvgShedderHitCountLowThreshold": 1, "loadBalancerAvgShedderLowThreshold": 1}
    conf |= {"minUnloadMessage": 0, "minUnloadMessageThroughput": 0}
    names, bundles = list(cluster.brokers), cluster.known_bundles()
    if not bundles:
        bundles = {"t/n/0x00000000_0xffffffff": draw.traffic()}
    cases = [{"bundle": draw.choice(list(bundles)), "candidates": draw.subset(names)} for _ in range(4)]
    return {"conf": conf, "brokers": cluster.brokers, "bundles": bundles, "rounds": [{}], "cases": cases}
