"""Random scenarios of the extensible load manager: brokers' reports, TransferShedder, and placement."""

from __future__ import annotations

from collections.abc import Sequence

from scenario_draws import BROKER_COUNTS, Draw, Fields

BEGIN = 1_700_000_000_000
"""Clock of a scenario's first round, ms."""

STALE_MS = 1_860_000
"""Age of outdated load data. It is well above the bound (half an hour), because the shedder reads the wall clock."""

EXCLUDED = "t/excluded"


class Reports:
    """Load data and top bundles of an extensible cluster that is being drawn."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.names = draw.broker_names(draw.choice(BROKER_COUNTS))
        self._bundles = 0
        self.traffic: dict[str, tuple[float, float]] = {}
        self.top: dict[str, list[list[object]]] = {}
        for name in self.names:
            self.report(name)
        self.spread = draw.pick(1.0, 1.0, 0.15)
        self.brokers = {name: self.load(name) for name in self.names}

    def report(self, name: str) -> None:
        """Draw a broker's top bundles, lightest first, and with them its throughput; some brokers report none."""
        draw = self.draw
        scale = draw.pick(1e5, 1e6, 1e7, 1e8)
        values = sorted((draw.amount(scale / 50, scale), draw.pick(0.0, draw.amount(1, scale))) for _ in range(10))
        values = sorted(values[: draw.pick(0, 1, 2, 3, 5, 10, 10, 10)], key=sum)
        if draw.chance(0.05):
            values = [(0.0, 0.0), *values]
        if draw.chance(0.05):
            values = [values[0]] * len(values) if values else []
        self.top[name] = [[self._bundle(), *pair] for pair in values]
        rest = draw.pick(0.0, draw.amount(1, scale), draw.amount(1, scale * 20))
        sums = (sum(a for a, _ in values) + rest, sum(b for _, b in values))
        self.traffic[name] = (round(sums[0], 6), round(sums[1], 6))

    def _bundle(self) -> str:
        self._bundles += 1
        space = self.draw.pick("t/n", "t/n", "tenant-a/ns-1", EXCLUDED)
        return f"{space}/0x{self._bundles:08x}_0x{self._bundles + 1:08x}"

    def load(self, name: str) -> Fields:
        """What a broker reports of itself."""
        draw = self.draw
        usage = draw.pick(draw.random(), draw.uniform(0, 2), 0.4 + draw.uniform(-0.3, 0.5) * self.spread)
        digits = 1 if draw.chance(0.05) else draw.pick(3, 6)
        throughput = dict(zip(("msg_throughput_in", "msg_throughput_out"), self.traffic[name], strict=True))
        smoothed = {"msg_throughput_ema": draw.amount(1e4, 1e8)} if draw.chance(0.2) else {}
        return {"weighted_max_ema": round(max(usage, 0.0), digits), **throughput, **smoothed}

    def reported(self) -> dict[str, list[list[object]]]:
        """Top bundles of the brokers that have sent any."""
        return {name: top for name, top in self.top.items() if not self.draw.chance(0.04)}

    def bundles(self) -> list[str]:
        """Names of all reported bundles."""
        return [str(entry[0]) for top in self.top.values() for entry in top]


def transfer(draw: Draw) -> Fields:
    """``extensible.TransferShedder`` over a few rounds, a minute or more apart."""
    reports = Reports(draw)
    scenario = {"conf": _transfer_settings(draw), "brokers": reports.brokers, "top_bundles": reports.reported()}
    now, rounds = BEGIN, []
    for number in range(draw.pick(1, 1, 2, 3, 5)):
        rounds.append(_transfer_round(draw, reports, now, first=number == 0))
        now += draw.pick(60_000, 60_000, 180_000)
    return {**scenario, "rounds": rounds}


def _transfer_settings(draw: Draw) -> Fields:
    quick = {"loadBalancerSheddingConditionHitCountThreshold": draw.pick(0, 0, 0, 1, 2)} if draw.chance(0.8) else {}
    return quick | draw.settings(
        0.4,
        loadBalancerBrokerLoadTargetStd=(0.0, 0.05, 0.1, 0.2, 0.25, 0.5, 1.5),
        loadBalancerDebugModeEnabled=(True,),
        loadBalancerMaxNumberOfBrokerSheddingPerCycle=(0, 1, 2, 5, 20),
        loadBalancerTransferEnabled=(False, True, True),
        loadBalancerSheddingExcludedNamespaces=([EXCLUDED],),
        loadBalancerBrokerOverloadedThresholdPercentage=(30, 50, 95),
    )


def _transfer_round(draw: Draw, reports: Reports, now: int, *, first: bool) -> Fields:
    late = draw.pick(0.0, 0.0, 0.0, 0.2, 1.0)
    changes: dict[str, Fields] = {}
    for name in reports.names:
        age = STALE_MS if draw.chance(late) else draw.pick(0, 1000, 5000, 30_000)
        changes[name] = {"updated_at": now - age}
    step: Fields = {"now": now, "set_brokers": changes}
    if not first and draw.chance(0.6):
        anew = draw.some(reports.names, 0.4)
        for name in anew:
            reports.report(name)
            changes[name] |= reports.load(name)
        step["set_top_bundles"] = {name: reports.top[name] for name in anew}
    if not first and draw.chance(0.08):
        step["remove_brokers"] = draw.some(reports.names, 0.3)
        reports.names = [name for name in reports.names if name not in step["remove_brokers"]]
        step["set_brokers"] = {name: changed for name, changed in changes.items() if name in reports.names}
        step["set_top_bundles"] = {name: reports.top[name] for name in reports.names[:1]}
    step |= _recent(draw, reports, now)
    step |= _policies(draw, reports)
    if draw.chance(0.08):
        unseen = ["unseen-broker:8080"] if draw.chance(0.4) else []
        step["available"] = [*draw.subset(reports.names), *unseen]
    return step


def _recent(draw: Draw, reports: Reports, now: int) -> Fields:
    step: Fields = {}
    if draw.chance(0.3):
        step["recently_unloaded_bundles"] = draw.some(reports.bundles(), 0.2)
    if draw.chance(0.12):
        ages = {name: draw.pick(10_000, 170_000, 180_000, 185_000, 10**6) for name in draw.some(reports.names, 0.3)}
        step["recently_unloaded_brokers"] = {name: now - age for name, age in ages.items()}
    return step


def _policies(draw: Draw, reports: Reports) -> Fields:
    step: Fields = {}
    if draw.chance(0.15):
        step["not_owned"] = draw.some(reports.bundles(), 0.2)
    if draw.chance(0.2):
        step["not_transferable"] = draw.some(reports.bundles(), 0.3)
    if draw.chance(0.15):
        choices = draw.some(reports.bundles(), 0.3)
        step["allowed_brokers"] = {bundle: draw.subset(reports.names, 0) for bundle in choices}
    return {key: value for key, value in step.items() if value}


def placement(draw: Draw) -> Fields:
    """``extensible.LeastResourceUsageWithWeight``: candidates, some of which have sent no load data."""
    names = draw.broker_names(draw.choice(BROKER_COUNTS))
    conf = draw.settings(0.5, loadBalancerAverageResourceUsageDifferenceThresholdPercentage=(0, 1, 5, 10, 30))
    steps = []
    for _ in range(draw.randint(1, 4)):
        known = names if draw.chance(0.6) else draw.subset(names, 0)
        usage = {name: round(draw.level() / 100, draw.pick(1, 2, 6)) for name in known}
        steps.append({"weighted_max_ema": usage, "candidates": draw.subset(names, draw.pick(0, 1, 1, len(names)))})
    return {"conf": conf, "steps": steps}


def broker_load(draw: Draw) -> Fields:
    """``extensible.BrokerLoadData``: consecutive reports of one broker."""
    conf = draw.weights() | draw.settings(
        0.4,
        loadBalancerHistoryResourcePercentage=(0.0, 0.5, 0.8, 1.0),
        loadBalancerMemoryResourceWeight=(0.5, 1.0),
    )
    rounds = []
    for _ in range(draw.randint(1, 6)):
        throughput = {"msg_throughput_in": draw.amount(1, 1e8), "msg_throughput_out": draw.pick(0.0, 5e6)}
        rounds.append({**draw.resources(draw.level()), **throughput})
    return {"conf": conf, "rounds": rounds}


def top_bundles(draw: Draw) -> Fields:
    """``extensible.TopKBundles``: the busiest bundles of a broker, in the order in which it lists them."""
    names = draw.bundle_names(draw.pick(1, 3, 8, 20, 60))
    names += draw.some([f"pulsar/system/0x{k:08x}_0x{k + 1:08x}" for k in range(4)], 0.2)
    draw.shuffle(names)
    bundles = {name: draw.traffic() | _counts(draw) for name in names}
    _nearly_equal(draw, bundles, names)
    return {"conf": {}, "k": draw.pick(1, 2, 3, 5, 10, 20), "bundles": bundles}


def _counts(draw: Draw) -> Fields:
    keys = ("topics", "consumer_count", "producer_count", "cache_size")
    return {key: draw.randrange(limit) for key, limit in zip(keys, (2000, 1000, 100, 10**6), strict=True)}


def _nearly_equal(draw: Draw, bundles: dict[str, Fields], names: Sequence[str]) -> None:
    """Let some bundles differ by less than the comparison can distinguish, or not at all."""
    if not draw.chance(0.4):
        return
    model = bundles[names[0]]
    for name in draw.some(names, 0.5):
        bundles[name] = {**model, "msg_throughput_in": round(model["msg_throughput_in"] + draw.pick(0, 10, 60_000), 6)}
