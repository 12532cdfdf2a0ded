"""When bundles are divided: the rules of Pulsar's two managers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from splitting_clusters import large, reasons, with_topics
from strategy_testing.clusters import cluster
from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, Reason
from trimtab_strategies.params import Compatibility
from trimtab_strategies.protocols import Splitting
from trimtab_strategies.registry import SPLITTERS, InvalidParamsError, UnknownStrategyError, splitter
from trimtab_strategies.splitting.bundle_splitter_task import BundleSplitterTask
from trimtab_strategies.splitting.namespace_bundle_split import DefaultNamespaceBundleSplitStrategy

MODULAR, EXTENSIBLE = "BundleSplitterTask", "DefaultNamespaceBundleSplitStrategy"
AT_ONCE: dict[str, dict[str, Any]] = {MODULAR: {}, EXTENSIBLE: {"hitCount": 1}, "WeightedSplitter": {"hitCount": 1}}
"""Parameters with which each splits in the first cycle."""


def _split(name: str, drawn: ClusterLoad, memory: Any = None, **params: Any) -> Splitting:
    return splitter(name, params).split(drawn, np.ones(len(drawn.bundles), dtype=bool), memory or {})


def _at_once(drawn: ClusterLoad, **params: Any) -> Splitting:
    return _split(EXTENSIBLE, drawn, hitCount=1, **params)


def _bundles(splitting: Splitting) -> list[int]:
    return [split.bundle for split in splitting.proposed]


def test_splitters_are_built_by_name_from_camel_case_parameters() -> None:
    assert isinstance(splitter(MODULAR, {"maxTopics": 5}), BundleSplitterTask)
    made = splitter(EXTENSIBLE, {"hitCount": 7})
    assert isinstance(made, DefaultNamespaceBundleSplitStrategy)
    assert made.params.hit_count == 7


def test_unknown_splitter_and_bad_parameter_are_named() -> None:
    with pytest.raises(UnknownStrategyError, match="splitter 'Halves' is unknown, use one of BundleSplitterTask"):
        splitter("Halves", {})
    with pytest.raises(InvalidParamsError, match=r"BundleSplitterTask: maxTopics: .*greater than or equal to 1"):
        splitter(MODULAR, {"maxTopics": 0})


BY_LIMITS = sorted({*SPLITTERS} - {"Trim"})
"""Splitters that go by a bundle's own limits; Trim's goes by what brokers can carry."""


@pytest.mark.parametrize("name", BY_LIMITS)
@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"topics": 1001}, Reason.TOPICS),
        ({"sessions": 1001}, Reason.SESSIONS),
        ({"rate": 30001}, Reason.MSG_RATE),
        ({"throughput": 101}, Reason.BANDWIDTH),
        ({"topics": 1000, "sessions": 1000, "rate": 30000, "throughput": 100}, None),
    ],
)
def test_what_is_above_a_limit_is_too_large_and_at_the_limit_is_not(
    name: str, columns: dict[str, float], reason: Reason | None
) -> None:
    splitting = _split(name, large({3: columns}), **AT_ONCE[name])

    if reason is None:
        assert reasons(splitting) == [Reason.BALANCED]
    elif name == "WeightedSplitter":
        assert reasons(splitting) == [Reason.NO_LOAD_DATA]
    else:
        assert [(split.bundle, split.reason) for split in splitting.proposed] == [(3, reason)]


@pytest.mark.parametrize("name", [MODULAR, EXTENSIBLE])
def test_a_single_topic_is_never_split(name: str) -> None:
    assert not _split(
        name, large({0: {"topics": 1, "rate": 1e9}}), **({"hitCount": 1} if name == EXTENSIBLE else {})
    ).proposed


def test_of_several_reasons_the_first_of_topics_sessions_rate_and_bandwidth_counts() -> None:
    drawn = large({0: {"sessions": 2000, "rate": 1e6, "throughput": 1e6}})

    assert _at_once(drawn).proposed[0].reason is Reason.SESSIONS


def test_sessions_have_no_limit_at_minus_one() -> None:
    assert not _split(MODULAR, large({0: {"sessions": 1e6}}), maxSessions=-1).proposed


def test_the_modular_rule_looks_at_long_term_averages_and_the_other_at_current_ones() -> None:
    drawn = large({0: {"rate": 1e6}, 1: {"rate": 1e6}})
    short, long = drawn.bundles.short.copy(), drawn.bundles.long.copy()
    long[0], short[1] = np.nan, np.nan
    drawn = replace(drawn, bundles=replace(drawn.bundles, short=short, long=long))

    assert _bundles(_split(MODULAR, drawn)) == [1]
    assert _bundles(_at_once(drawn)) == [0]


def test_a_namespace_gets_no_more_bundles_than_it_may_have() -> None:
    drawn = large({row: {"topics": 1001} for row in range(8)})

    splitting = _split(MODULAR, drawn, maxBundles=6)

    assert _bundles(splitting) == [0, 1, 4, 5]
    assert [(entry.reason, entry.count) for entry in splitting.held_back] == [(Reason.MAX_BUNDLES, 4)]


def test_the_modular_manager_needs_a_second_broker() -> None:
    drawn = large({0: {"topics": 1001}}, a=0.5)

    assert reasons(_split(MODULAR, drawn)) == [Reason.NO_BROKERS]
    assert _bundles(_at_once(drawn)) == [0]


def test_children_of_the_modular_rule_are_placed_again_unless_configured_otherwise() -> None:
    drawn = large({0: {"topics": 1001}})
    proposed = [_split(MODULAR, drawn, unload=unload).proposed[0] for unload in (True, False)]

    assert [split.spread for split in proposed] == [True, False]
    assert proposed[0].shares.tolist() == pytest.approx([0.5, 0.5])
    assert not _at_once(drawn).proposed[0].spread


@pytest.mark.parametrize("name", [MODULAR, EXTENSIBLE])
def test_a_throughput_limit_beyond_32_bits_splits_everything_unless_corrected(name: str) -> None:
    once: dict[str, Any] = {"hitCount": 1} if name == EXTENSIBLE else {}
    java, corrected = (
        _split(name, large({}), maxThroughput="2048Mi", compatibility=form, **once) for form in Compatibility
    )

    assert len(java.proposed) == 8
    assert not corrected.proposed


def test_a_bundle_is_split_at_the_hit_count() -> None:
    memory: Any = {}
    split_in = []
    for cycle in range(1, 9):
        splitting = _split(EXTENSIBLE, large({0: {"topics": 1001}}), memory)
        memory = splitting.memory
        split_in += [cycle] if splitting.proposed else []

    assert split_in == [4, 8]
    assert memory == {"hits": {}}


def test_a_cycle_below_the_limits_forgets_the_hits() -> None:
    memory = _split(EXTENSIBLE, large({0: {"topics": 1001}})).memory

    assert memory == {"hits": {"public/a/0x00000000_0x40000000": 1}}
    assert _split(EXTENSIBLE, large({}), memory).memory == {"hits": {}}


def test_hits_of_bundles_that_are_gone_are_forgotten() -> None:
    assert _split(EXTENSIBLE, large({}), {"hits": {"t/n/0x00000000_0xffffffff": 3}}).memory == {"hits": {}}


def test_a_broker_stops_at_its_cap_and_later_hits_stay_as_they_are() -> None:
    drawn = large({0: {"topics": 1001}, 1: {"topics": 1001}, 4: {"topics": 1001}})

    splitting = _at_once(drawn, maxSplits=1)

    assert _bundles(splitting) == [0, 4]
    assert splitting.memory == {"hits": {}}


def _in_one_namespace() -> ClusterLoad:
    """Two brokers with a hot bundle each, of one namespace of two bundles."""
    drawn = large({0: {"topics": 1001}, 1: {"topics": 1001}}, a=0.5, b=0.5, bundles=1)
    names = ("public/a/0x00000000_0x80000000", "public/a/0x80000000_0xffffffff")
    return replace(drawn, bundles=replace(drawn.bundles, names=names, namespace=np.zeros(2, dtype=np.int64)))


def test_brokers_together_exceed_the_namespace_s_maximum_unless_corrected() -> None:
    java, corrected = (_at_once(_in_one_namespace(), maxBundles=3, compatibility=form) for form in Compatibility)

    assert _bundles(java) == [0, 1]
    assert _bundles(corrected) == [0]
    assert reasons(corrected) == [Reason.MAX_BUNDLES]


def _beside_a_longer_name() -> ClusterLoad:
    """A hot bundle of public/a, and one of public/ab with the same lower end that is being split."""
    drawn = large({0: {"topics": 1001}}, a=0.5, ab=0.5, bundles=2)
    return replace(drawn, bundles=replace(drawn.bundles, in_flight=np.array([False, False, True, False])))


def test_a_split_in_a_namespace_whose_name_begins_alike_holds_back_unless_corrected() -> None:
    java, corrected = (_at_once(_beside_a_longer_name(), compatibility=form) for form in Compatibility)

    assert reasons(java) == [Reason.IN_FLIGHT]
    assert java.memory == {"hits": {"public/a/0x00000000_0x80000000": 1}}
    assert _bundles(corrected) == [0]


def test_a_bundle_of_one_hash_is_too_narrow() -> None:
    drawn = large({0: {"topics": 1001}})
    names = ("public/a/0x00000000_0x00000001", *drawn.bundles.names[1:])
    drawn = replace(drawn, bundles=replace(drawn.bundles, names=names))

    assert reasons(_split(MODULAR, drawn)) == [Reason.TOO_NARROW]
    assert reasons(_at_once(drawn)) == [Reason.TOO_NARROW]


TEN = [(0.9 + 0.01 * k, 15.0) for k in range(10)]
"""Topics of 150 MiB/s together, all at the upper end of their bundle."""


def test_topic_count_splits_between_the_topics() -> None:
    drawn = with_topics(large({}), {0: TEN})

    (split,) = _at_once(drawn, algorithm="topic_count_equally_divide").proposed

    _, lower, upper = parse_bundle(drawn.bundles.names[0])
    assert (split.boundaries[0] - lower) / (upper - lower) == pytest.approx(0.945)


def test_flow_or_qps_may_give_the_modular_manager_several_children() -> None:
    drawn = with_topics(large({}), {0: [*TEN, *TEN[:4]]})

    (split,) = _split(MODULAR, drawn, algorithm="flow_or_qps_equally_divide").proposed

    assert len(split.boundaries) == 2
    assert split.shares.sum() == pytest.approx(1)


def test_several_boundaries_never_split_in_the_extensible_manager() -> None:
    drawn = with_topics(large({}), {0: [*TEN, *TEN[:4]]})

    splitting = _at_once(drawn, algorithm="flow_or_qps_equally_divide")

    assert reasons(splitting) == [Reason.UNKNOWN]
    assert list(splitting.memory["hits"].values()) == [1]


def test_a_bundle_whose_topics_are_unknown_is_not_split_by_their_number() -> None:
    drawn = large({0: {"topics": 1001}})

    assert reasons(_split(MODULAR, drawn, algorithm="topic_count_equally_divide")) == [Reason.TOO_FEW_TOPICS]
    assert reasons(_at_once(drawn, algorithm="topic_count_equally_divide")) == [Reason.UNKNOWN]


@pytest.mark.parametrize("name", BY_LIMITS)
def test_bundles_without_owner_are_not_split(name: str) -> None:
    drawn = cluster(a=0.5, b=0.5, unowned=2)
    topics = np.full(len(drawn.bundles), 5000.0)
    drawn = replace(drawn, bundles=replace(drawn.bundles, topics=topics, owner=np.full(len(topics), -1)))

    assert reasons(_split(name, drawn)) == [Reason.BALANCED]


def test_a_limit_that_overflows_to_zero_is_reported_without_a_warning() -> None:
    drawn = large({})
    nothing = replace(drawn, bundles=replace(drawn.bundles, long=np.zeros((8, 4))))

    assert reasons(_split(MODULAR, nothing, maxThroughput="4096Mi")) == [Reason.BALANCED]
