"""Random scenarios of splits (when, where, and into which children) and of the hash ring."""

from __future__ import annotations

from scenario_draws import FULL_RING, NAMESPACES, Draw, Fields

TOPICS = ("orders", "events", "a", "x.y-z", "tést", "日本", "with space")
ALGORITHMS = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "specified_positions_divide",
    "specified_positions_divide_force",
    "flow_or_qps_equally_divide",
)


def _limits(draw: Draw) -> Fields:
    return draw.settings(
        0.5,
        loadBalancerNamespaceBundleMaxTopics=(1, 10, 500, 1000),
        loadBalancerNamespaceBundleMaxSessions=(-1, 0, 100, 1000),
        loadBalancerNamespaceBundleMaxMsgRate=(0, 100, 15000, 30000),
        loadBalancerNamespaceBundleMaxBandwidthMbytes=(0, 1, 100, 2047, 2048, 4096),
        loadBalancerNamespaceMaximumBundles=(1, 4, 128),
    )


def _stats(draw: Draw) -> Fields:
    """What a broker reports of one bundle: mostly near the limits, on both sides and exactly at them."""
    return {
        "topics": draw.pick(0, 1, 2, 5, 10, 11, 500, 501, 1000, 1001),
        "consumer_count": draw.pick(0, 50, 51, 500, 501, 1000),
        "producer_count": draw.pick(0, 1, 50, 450, 500),
        **_rates(draw),
    }


def _rates(draw: Draw) -> Fields:
    half = 1048576.0 * 50
    return {
        "msg_rate_in": draw.pick(0.0, 50.0, 15000.0, draw.amount(1, 30000)),
        "msg_rate_out": draw.pick(0.0, 50.0, 15000.0, 15000.5),
        "msg_throughput_in": draw.pick(0.0, half, draw.amount(1, 1e9), 2147483648.0),
        "msg_throughput_out": draw.pick(0.0, 0.0, half, half + 1),
    }


def _bundle_counts(draw: Draw, unknown: float) -> dict[str, int]:
    return {space: draw.pick(1, 3, 4, 126, 127, 128) for space in NAMESPACES if not draw.chance(unknown)}


def modular(draw: Draw) -> Fields:
    """``modular.BundleSplitterTask``: brokers' last reports, and averages that some bundles lack."""
    names = draw.broker_names(draw.pick(0, 1, 2, 3, 5))
    bundles = draw.bundle_names(draw.pick(1, 4, 10, 30))
    stats: dict[str, dict[str, Fields]] = {name: {} for name in names}
    for bundle in bundles if names else []:
        stats[draw.choice(names)][bundle] = _stats(draw)
    return {
        "conf": _limits(draw),
        "brokers": {name: {"stats": of} for name, of in stats.items()},
        "bundles": {bundle: _rates(draw) for bundle in bundles if not draw.chance(0.2)},
        "namespace_bundle_count": _bundle_counts(draw, draw.pick(0.0, 0.2)),
    }


def extensible(draw: Draw) -> Fields:
    """``extensible.DefaultNamespaceBundleSplitStrategyImpl``: a broker's own bundles over a few rounds."""
    names = draw.bundle_names(draw.pick(1, 3, 6, 15, 30))
    draw.shuffle(names)
    conf = _limits(draw) | draw.settings(
        0.6,
        loadBalancerNamespaceBundleSplitConditionHitCountThreshold=(0, 0, 1, 2),
        loadBalancerMaxNumberOfBundlesToSplitPerCycle=(0, 1, 3),
    )
    if draw.chance(0.1):
        names.append("t/n/0x10000000_0x10000001")  # too narrow to split
    neighbours = [*names, *(f"{space}/0x00000000_0x{FULL_RING:08x}" for space in NAMESPACES)]
    rounds: list[Fields] = [{}] + [_extensible_change(draw, names) for _ in range(draw.pick(0, 1, 3, 5))]
    return {
        "conf": conf,
        "bundles": {name: _stats(draw) for name in names},
        "namespace_bundle_count": _bundle_counts(draw, 0.0),
        "splitting": draw.some(neighbours, 0.1) if draw.chance(0.3) else [],
        "not_owned": draw.some(names, 0.1) if draw.chance(0.3) else [],
        "split_boundaries_returned": 1,
        "rounds": rounds,
    }


def _extensible_change(draw: Draw, names: list[str]) -> Fields:
    step: Fields = {}
    if draw.chance(0.15):
        step["remove_bundles"] = draw.some(names, 0.2)
    if draw.chance(0.4):
        step["set_bundles"] = {name: _stats(draw) for name in draw.some(names, 0.3)}
    if draw.chance(0.2):
        step["not_owned"] = draw.some(names, 0.2)
    if draw.chance(0.15):
        step["split_boundaries_returned"] = draw.pick(None, -1, 0, 2)
    return step


def _range(draw: Draw) -> tuple[int, int]:
    kind = draw.randrange(5)
    lower = 0 if kind < 2 else draw.randrange(FULL_RING - 10)
    upper = FULL_RING if kind in (0, 2) else lower + draw.pick(1, 2, 3, 7, draw.randint(2, FULL_RING - lower))
    return lower, min(upper, FULL_RING)


def _topics(draw: Draw, count: int) -> list[str]:
    names = []
    for _ in range(count):
        partition = f"-partition-{draw.randrange(64)}" if draw.chance(0.4) else ""
        domain, word = draw.pick("persistent", "non-persistent"), draw.choice(TOPICS)
        names.append(f"{domain}://t/n/{word}{draw.randrange(10000)}{partition}")
    return list(dict.fromkeys(names))


def boundaries(draw: Draw) -> Fields:
    """``split.boundaries``: all algorithms, on topics by name or by given hash."""
    return {"cases": [_boundary_case(draw, algorithm) for algorithm in ALGORITHMS for _ in range(2)]}


def _boundary_case(draw: Draw, algorithm: str) -> Fields:
    lower, upper = _range(draw)
    case: Fields = {"algorithm": algorithm, "lower": lower, "upper": upper}
    count = draw.pick(0, 1, 2, 3, 5, 12, 40)
    if draw.chance(0.5):
        repeated = draw.chance(0.2)
        hashes = [draw.randint(lower, upper) for _ in range(count)]
        case["hashes"] = [draw.choice(hashes) for _ in hashes] if repeated else hashes
    else:
        case["topics"] = _topics(draw, count)
    if algorithm.startswith("specified"):
        inside = [draw.randint(lower, upper) for _ in range(draw.pick(0, 1, 2, 5))]
        case["positions"] = inside + draw.some([lower, upper, 0, FULL_RING], 0.2)
    if algorithm.startswith("flow"):
        case |= _flow(draw, len(case.get("hashes", case.get("topics", ()))))
    return case


def _flow(draw: Draw, count: int) -> Fields:
    rate, size = draw.pick(10, 100, 1000, 30000), draw.pick(1, 100, 4096)
    share = draw.pick(0.1, 0.5, 1.0, 2.0)

    def topic() -> list[float] | None:
        if draw.chance(0.1):
            return None
        measured = [draw.amount(0.01, rate * share), draw.amount(1, size * 1048576 * share)]
        return draw.pick(measured, measured, [measured[0], 0.0], [0.0, measured[1]], [0.0, 0.0])

    limits = {"max_msg_rate": rate, "max_bandwidth_mbytes": size, "diff_percent": draw.pick(0, 10, 50)}
    return {**limits, "stats": [topic() for _ in range(count)]}


def children(draw: Draw) -> Fields:
    """``split.children``: equal parts, given boundaries, and what can't be split."""
    cases = []
    for _ in range(6):
        lower, upper = _range(draw)
        case: Fields = {"parent": f"0x{lower:08x}_0x{upper:08x}", "num_bundles": draw.pick(2, 2, 3, 4, 7)}
        if draw.chance(0.6):
            inside = {draw.randint(lower, upper) for _ in range(draw.pick(0, 1, 1, 2, 4))}
            repeated = draw.some(sorted(inside), 0.1)
            case["boundaries"] = sorted([*inside, *repeated, *draw.some([lower, upper], 0.05)])
            case["num_bundles"] = len(case["boundaries"]) + 1 if case["boundaries"] else case["num_bundles"]
        cases.append(case)
    return {"cases": cases}


def _ring(draw: Draw) -> list[str]:
    inside = {draw.randrange(1, FULL_RING) for _ in range(draw.pick(0, 1, 3, 15, 60))}
    return [f"0x{edge:08x}" for edge in (0, *sorted(inside), FULL_RING)]


def topic_to_bundle(draw: Draw) -> Fields:
    """``naming.topic_to_bundle``: topics of all spellings on default and on uneven rings."""
    counts = [draw.pick(1, 2, 3, 4, 16, 100), draw.randint(1, 1000)]
    return {"topics": _topics(draw, 10), "num_bundles": counts, "boundaries": _ring(draw)}


def hash_to_bundle(draw: Draw) -> Fields:
    """``naming.hash_to_bundle``: hashes anywhere, at the boundaries and next to them."""
    ring = _ring(draw)
    edges = [int(edge, 16) for edge in ring]
    near = [min(max(edge + draw.pick(-1, 0, 1), 0), FULL_RING) for edge in draw.sample(edges, min(6, len(edges)))]
    return {"boundaries": ring, "hashes": near + [draw.randrange(FULL_RING + 1) for _ in range(6)]}
