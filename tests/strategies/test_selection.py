"""Candidates: each rule excludes the right brokers with a reason; both pipelines decide as Pulsar's managers do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import NOW, cluster, with_bundles
from trimtab_strategies.filters import (
    ActiveSelection,
    BrokerSelection,
    Manager,
    SelectionParams,
    isolation_problems,
)
from trimtab_strategies.filters.versions import UnknownVersionError, precedence
from trimtab_strategies.model import CPU, BrokerTraits, ClusterLoad, Isolation, NamespacePolicy, Reason, Topics
from trimtab_strategies.model.cluster_load import IntArray
from trimtab_strategies.placement.least_message_rate import LeastLongTermMessageRate, LeastLongTermMessageRateParams
from trimtab_strategies.placement.round_robin import RoundRobin, RoundRobinParams
from trimtab_strategies.protocols import Choice

EVERYONE = np.arange(3)


@dataclass
class First:
    """A placement that takes the first candidate, and remembers what it was offered."""

    offered: list[list[int]] = field(default_factory=list)

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:  # noqa: ARG002 - only the candidates matter
        """The first candidate."""
        self.offered.append(candidates.tolist())
        return Choice(candidates[:1], {**memory, "asked": int(memory.get("asked", 0)) + 1})


def three(policies: dict[str, NamespacePolicy] | None = None, **traits: BrokerTraits) -> ClusterLoad:
    """Brokers a, b and c with two bundles each of their own namespaces (rows 0-1, 2-3, 4-5), and an unowned one (6)."""
    drawn = cluster(bundles=2, unowned=1, a=0.9, b=0.5, c=0.1)
    return replace(drawn, policies=policies or {}, traits=traits)


def on(picture: ClusterLoad, manager: Manager = Manager.EXTENSIBLE, **params: Any) -> ActiveSelection:
    return BrokerSelection(manager, SelectionParams(**params)).on(picture)


def reasons(selecting: ActiveSelection, bundle: int = 6) -> list[Reason | None]:
    verdict = selecting.candidates(bundle, EVERYONE)
    return [verdict.reason(row) for row in range(3)]


@pytest.mark.parametrize("manager", Manager)
def test_without_policies_every_broker_is_a_candidate(manager: Manager) -> None:
    assert reasons(on(three(), manager)) == [None, None, None]


@pytest.mark.parametrize("manager", Manager)
def test_isolated_namespace_gets_its_own_brokers_and_others_do_not_get_them(manager: Manager) -> None:
    picture = three({"public/new": NamespacePolicy(Isolation(("[ab]",)))})

    assert reasons(on(picture, manager)) == [None, None, Reason.ISOLATION]
    assert reasons(on(picture, manager), bundle=0) == [Reason.ISOLATION, Reason.ISOLATION, None]


def test_patterns_match_whole_hosts_without_their_port() -> None:
    names = {"broker1:8080": 0.5, "broker10:8080": 0.5, "[::1]:8080": 0.5}
    picture = cluster(bundles=1, **names)
    picture = replace(picture, policies={"public/broker1:8080": NamespacePolicy(Isolation(("broker1", r"\[::1\]")))})

    assert reasons(on(picture), bundle=0) == [None, Reason.ISOLATION, None]


def test_primary_that_takes_nothing_more_does_not_open_the_secondary_brokers() -> None:
    picture = three({"public/new": NamespacePolicy(Isolation(("a",), ("b",)))})
    placement = First()

    barred = on(picture).choose(6, EVERYONE, placement, {}, barred=np.array([0]))
    gone = on(picture).choose(6, EVERYONE[1:], placement, {})

    assert barred.brokers.tolist() == []
    assert gone.brokers.tolist() == [1]


@pytest.mark.parametrize("manager", Manager)
def test_broker_gets_only_topics_of_the_kind_it_serves(manager: Manager) -> None:
    picture = three(a=BrokerTraits(persistent=False), b=BrokerTraits(non_persistent=False))
    topics = Topics(("non-persistent://public/new/t",), np.array([6]), np.array([0]), np.zeros((1, 4)))

    assert reasons(on(picture, manager)) == [Reason.ISOLATION, None, None]
    assert reasons(on(replace(picture, topics=topics), manager)) == [None, Reason.ISOLATION, None]


def test_modular_keeps_all_when_all_are_over_the_topic_limit_and_extensible_none() -> None:
    picture = with_bundles(three(), topics=dict.fromkeys(range(6), 50))

    assert reasons(on(picture, Manager.MODULAR, max_topics=99)) == [None, None, None]
    assert reasons(on(picture, Manager.EXTENSIBLE, max_topics=99)) == [Reason.TOPIC_LIMIT] * 3


def test_broker_exactly_at_the_topic_limit_is_in_for_modular_and_out_for_extensible() -> None:
    picture = with_bundles(three(), topics={0: 99})  # a has 100, the others 2

    assert reasons(on(picture, Manager.MODULAR, max_topics=100)) == [None, None, None]
    assert reasons(on(picture, Manager.EXTENSIBLE, max_topics=100)) == [Reason.TOPIC_LIMIT, None, None]


def test_topics_no_one_counted_are_none() -> None:
    picture = with_bundles(three(), topics={0: np.nan})

    assert reasons(on(picture, max_topics=2)) == [None, Reason.TOPIC_LIMIT, Reason.TOPIC_LIMIT]


def test_modular_spreads_the_bundles_of_a_namespace_evenly_and_follows_what_it_placed() -> None:
    selecting = on(three(), Manager.MODULAR)
    verdict = selecting.candidates(0, EVERYONE)

    assert [verdict.reason(row) for row in range(3)] == [Reason.UNEVEN, None, None]
    selecting.moved(0, 1)
    verdict = selecting.candidates(1, EVERYONE)
    assert [verdict.reason(row) for row in range(3)] == [Reason.UNEVEN, Reason.UNEVEN, None]


def test_system_namespace_is_always_spread_evenly() -> None:
    picture = replace(three(), namespaces=("pulsar/system", "public/b", "public/c", "public/new"))

    assert reasons(on(picture, Manager.MODULAR, distribute_evenly=False), bundle=0) == [Reason.UNEVEN, None, None]
    assert reasons(on(picture, Manager.MODULAR, distribute_evenly=False), bundle=2) == [None, None, None]


GROUP = NamespacePolicy(anti_affinity_group="apart")


def test_modular_counts_a_group_by_namespaces_and_extensible_by_bundles() -> None:
    # a has both bundles of one namespace, b one each of two namespaces, c one bundle of a third
    picture = three(dict.fromkeys(("public/a", "public/b", "public/c", "public/new"), GROUP))
    namespaces = with_bundles(picture, namespace={2: 1, 3: 2, 4: 2, 5: 2}, owner={5: -1})

    modular = on(namespaces, Manager.MODULAR, distribute_evenly=False)
    assert reasons(modular) == [None, Reason.ANTI_AFFINITY, None]
    assert reasons(on(namespaces, Manager.EXTENSIBLE)) == [Reason.ANTI_AFFINITY, Reason.ANTI_AFFINITY, None]


def test_group_follows_what_was_placed() -> None:
    selecting = on(with_bundles(three({"public/new": GROUP}), namespace={4: 3, 5: 3}, owner={4: -1, 5: -1}))

    for bundle, left in ((4, [0, 1, 2]), (5, [1, 2]), (6, [2])):
        assert np.flatnonzero(selecting.candidates(bundle, EVERYONE).allowed).tolist() == left
        selecting.moved(bundle, left[0])


def test_failure_domains_come_before_brokers_and_brokers_without_one_share_one() -> None:
    domains = {"a": BrokerTraits(failure_domain="x"), "b": BrokerTraits(failure_domain="x")}
    picture = replace(three({"public/new": GROUP, "public/a": GROUP}), traits=domains)

    assert reasons(on(picture, failure_domains=True)) == [Reason.ANTI_AFFINITY, Reason.ANTI_AFFINITY, None]
    assert reasons(on(picture)) == [Reason.ANTI_AFFINITY, None, None]


def test_bundle_of_a_group_stays_when_all_brokers_have_as_many() -> None:
    even = with_bundles(three(dict.fromkeys(("public/a", "public/b", "public/c"), GROUP)))

    assert on(even).may_leave(0, EVERYONE) is Reason.ANTI_AFFINITY
    assert on(with_bundles(even, owner={5: 0})).may_leave(0, EVERYONE) is None
    assert on(even).may_leave(6, EVERYONE) is None


def test_bundle_stays_when_its_policy_names_only_its_owner() -> None:
    picture = three({"public/a": NamespacePolicy(Isolation(("a",)))})

    assert on(picture).may_leave(0, EVERYONE) is Reason.ISOLATION


def test_other_load_managers_are_out_and_unknown_ones_stay_in() -> None:
    picture = three(a=BrokerTraits(load_manager="Modular"), b=BrokerTraits(load_manager="Extensible"))

    assert reasons(on(picture, load_manager="Extensible")) == [Reason.LOAD_MANAGER, None, None]
    assert reasons(on(picture)) == [None, None, None]


def test_older_versions_are_out_only_if_asked() -> None:
    picture = three(a=BrokerTraits("4.2.4"), b=BrokerTraits("4.10.0"), c=BrokerTraits("4.10.0+build.7"))

    assert reasons(on(picture, prefer_later_versions=True)) == [Reason.VERSION, None, None]
    assert reasons(on(picture)) == [None, None, None]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("4.2.4", "4.2.10"),
        ("4.2.4-SNAPSHOT", "4.2.4"),
        ("4.2.4-rc.2", "4.2.4-rc.10"),
        ("4.2.4-1", "4.2.4-rc"),
        ("4.2.4-rc", "4.2.4-rc.1"),
    ],
)
def test_versions_are_ordered_as_semantic_ones(older: str, newer: str) -> None:
    assert precedence(older) < precedence(newer)


@pytest.mark.parametrize("version", ["", "4.2", "v4.2.4", "4.02.4", "4.2.4-"])
def test_text_that_is_no_version_is_named(version: str) -> None:
    with pytest.raises(UnknownVersionError, match="can't be compared: use three numbers") as error:
        precedence(version)

    assert repr(version) in str(error.value)


def test_version_that_cannot_be_read_brings_back_all_for_modular_and_skips_the_rule_for_extensible() -> None:
    picture = with_bundles(three(a=BrokerTraits("4.2.4")), topics={0: 999})
    params = {"prefer_later_versions": True, "max_topics": 500}

    assert reasons(on(picture, Manager.MODULAR, **params)) == [None, None, None]
    assert reasons(on(picture, Manager.EXTENSIBLE, **params)) == [Reason.TOPIC_LIMIT, None, None]


def test_modular_falls_back_to_what_the_policies_allow_and_extensible_to_no_broker() -> None:
    other = {name: BrokerTraits(load_manager="Other") for name in "abc"}
    picture = replace(three({"public/new": NamespacePolicy(Isolation(("a", "b")))}), traits=other)

    assert reasons(on(picture, Manager.MODULAR, load_manager="Mine")) == [None, None, Reason.ISOLATION]
    assert reasons(on(picture, Manager.EXTENSIBLE, load_manager="Mine")) == [Reason.LOAD_MANAGER] * 3


def test_modular_asks_again_among_all_when_the_chosen_broker_is_overloaded() -> None:
    placement = First()
    picture = with_bundles(three(), namespace={2: 3, 4: 3})  # a has none of the namespace, and is at 90 %

    choice = on(picture, Manager.MODULAR).choose(6, EVERYONE, placement, {})

    assert placement.offered == [[0], [0, 1, 2]]
    assert choice.memory == {"asked": 2}
    assert choice.brokers.tolist() == [0]


def test_overload_is_judged_by_the_predicted_load() -> None:
    placement = First()
    picture = three()
    usage = picture.brokers.usage.copy()
    usage[0, CPU] = 0.1
    predicted = replace(picture, brokers=replace(picture.brokers, usage=usage))

    on(picture, Manager.MODULAR).choose(6, EVERYONE, placement, {}, predicted=predicted)
    on(picture, Manager.MODULAR).choose(6, EVERYONE, placement, {})

    assert placement.offered == [[0, 1, 2], [0, 1, 2], [0, 1, 2]]


def test_extensible_never_asks_twice() -> None:
    placement = First()

    assert on(three()).choose(6, EVERYONE, placement, {}).brokers.tolist() == [0]
    assert placement.offered == [[0, 1, 2]]


def test_excluded_namespaces_have_a_placement_and_a_memory_of_their_own() -> None:
    usual, other = First(), First()
    params = SelectionParams(excluded_namespaces=("public/new",), overload_threshold=95)
    selecting = BrokerSelection(Manager.MODULAR, params, other).on(three())

    memory = selecting.choose(6, EVERYONE, usual, {}).memory
    memory = selecting.choose(4, EVERYONE, usual, memory).memory

    assert (usual.offered, other.offered) == ([[0, 1]], [[0, 1, 2]])
    assert memory == {"excluded": {"asked": 1}, "asked": 1}


def test_turns_of_excluded_namespaces_go_on_in_the_next_snapshot() -> None:
    """Whatever else the usual placement forgets from picture to picture."""
    params = SelectionParams(excluded_namespaces=("public/new",), overload_threshold=95)
    selection = BrokerSelection(Manager.MODULAR, params, RoundRobin(RoundRobinParams()))
    usual = LeastLongTermMessageRate(LeastLongTermMessageRateParams())
    memory: Mapping[str, Any] = {}
    turns = []
    for turn in range(3):
        selecting = selection.on(replace(three(), now=NOW + 60 * turn))
        memory = selecting.choose(4, EVERYONE, usual, memory).memory
        choice = selecting.choose(6, EVERYONE, usual, memory)
        memory = choice.memory
        turns += choice.brokers.tolist()

    assert turns == [0, 1, 2]


@pytest.mark.parametrize("manager", Manager)
def test_no_broker_is_chosen_if_none_is_allowed(manager: Manager) -> None:
    picture = three({"public/new": NamespacePolicy(Isolation(("z",)))})

    choice = on(picture, manager).choose(6, EVERYONE, First(), {"kept": 1})

    assert choice.brokers.tolist() == []
    assert choice.memory == {"kept": 1}


@pytest.mark.parametrize(
    ("isolation", "told"),
    [
        (Isolation(("a[",)), "isolation pattern 'a[' is not a regular expression (unterminated character set"),
        (Isolation(("a",), ("a",)), "isolation pattern 'a' is primary and secondary: leave it in one of the two"),
        (Isolation(()), "the isolation policy has no pattern, so no broker may have its bundles: add one"),
        (Isolation(("a",), (), -1), "isolation min_available is -1: use 0 (never fail over) or more"),
    ],
)
def test_contradictory_policy_is_refused_with_value_and_fix(isolation: Isolation, told: str) -> None:
    (held_back,) = isolation_problems(("a:80",), {"t/n": NamespacePolicy(isolation)})

    assert (held_back.subject, held_back.reason) == ("t/n", Reason.INVALID_POLICY)
    assert held_back.detail.startswith(told)


@pytest.mark.parametrize(
    ("isolation", "told"),
    [
        (Isolation(("a[",), ("b",)), "isolation pattern 'a[' is not a regular expression"),
        (Isolation(("[ab]",), ("b|c",)), "host 'b' is primary and secondary of the isolation policy: let only one"),
        (Isolation(("z.*",), ("y",)), "isolation matches no broker with 'z.*', 'y': name hosts that exist"),
    ],
)
def test_policy_that_does_not_fit_the_brokers_is_reported_once(isolation: Isolation, told: str) -> None:
    (held_back,) = on(three({"public/new": NamespacePolicy(isolation)})).problems()

    assert (held_back.subject, held_back.reason) == ("public/new", Reason.INVALID_POLICY)
    assert held_back.detail.startswith(told)


def test_sound_policies_are_no_problem() -> None:
    assert on(three({"public/new": NamespacePolicy(Isolation(("a",), ("b",)))})).problems() == ()
    assert on(three({"t/n": NamespacePolicy(Isolation(("a", "b.*"), ("c",)))})).problems() == ()


def test_host_that_is_both_counts_as_primary() -> None:
    picture = three({"public/new": NamespacePolicy(Isolation(("a", "b"), ("b", "c")))})

    assert reasons(on(picture)) == [None, None, Reason.ISOLATION]


@pytest.mark.parametrize("manager", Manager)
def test_selecting_among_100_brokers_takes_a_tenth_of_a_millisecond(manager: Manager) -> None:
    picture = cluster(bundles=600, **{f"b{k}": 0.5 for k in range(100)})
    selecting, brokers = on(picture, manager), np.arange(100)
    bundles = range(0, 60_000, 60)
    for bundle in bundles:
        selecting.candidates(bundle, brokers)  # counts what depends on the picture alone

    began = time.process_time()
    for bundle in bundles:
        selecting.candidates(bundle, brokers)

    assert (time.process_time() - began) / len(bundles) < 1e-4
