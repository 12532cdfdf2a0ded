"""Who serves what on modular brokers: hints from load reports, and answers about single bundles."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

import records
from trimtab_operator.pulsar.bridge.ownership import LOOKUPS_AT_ONCE, ModularOwnership
from trimtab_operator.pulsar.bridge.sync.owners import OwnershipVerifier, OwnerSync
from trimtab_operator.pulsar.client.api import LoadManager
from trimtab_operator.pulsar.client.errors import PulsarUnavailableError, StaleBundleError
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.pulsar.client.transport import Budget

NAMES = [f"t/n/{k}" for k in range(10)]


@dataclass
class Brokers:
    """Says who serves a bundle. deaf: brokers that don't answer; gone: bundles that were split.

    reports: by broker the bundles that its load report lists.
    """

    owners: dict[str, str] = field(default_factory=dict)
    deaf: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    reports: dict[str, set[str]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)

    async def owner(self, bundle: str, broker: str) -> str:
        if broker in self.deaf:
            raise PulsarUnavailableError(f"{broker} does not answer")
        self.asked[bundle] += 1
        if bundle in self.gone:
            raise StaleBundleError(f"{bundle} was split")
        return self.owners.get(bundle, "")

    async def load_manager(self) -> LoadManager:
        return LoadManager.MODULAR

    async def reported(self, broker: str) -> frozenset[str]:
        return frozenset(self.reports.get(broker, ()))

    def verifier(self, most: int = 80) -> OwnershipVerifier:
        return OwnershipVerifier(cast("Admin", self), Budget(1e6), most)


def verified(
    verifier: OwnershipVerifier, reports: dict[str, list[str]], bundles: list[str], served: str = ""
) -> dict[str, str]:
    """served: id of the broker that their status names."""
    return asyncio.run(verifier.verify(reports, dict.fromkeys(bundles, served)))


def test_all_of_a_small_cluster_is_asked_for_in_each_sweep() -> None:
    brokers = Brokers({NAMES[0]: "a", NAMES[1]: "b"})
    verifier = brokers.verifier()

    assert verified(verifier, {"a": [], "b": []}, NAMES[:3]) == {NAMES[0]: "a", NAMES[1]: "b", NAMES[2]: ""}
    brokers.owners[NAMES[2]] = "a"
    assert verified(verifier, {"a": [], "b": []}, NAMES[:3])[NAMES[2]] == "a"


def test_what_a_report_says_again_is_asked_for_first_and_the_rest_in_turn() -> None:
    brokers = Brokers(dict.fromkeys(NAMES, "a"))
    verifier = brokers.verifier(most=4)
    for _ in range(3):
        verified(verifier, {"a": NAMES, "b": []}, NAMES)
    assert set(brokers.asked) == set(NAMES)

    brokers.owners[NAMES[7]] = "b"
    found = verified(verifier, {"a": NAMES, "b": [NAMES[7]]}, NAMES)

    assert found[NAMES[7]] == "b", "two reports list it: it has moved"
    assert len(found) == 4


def test_a_report_alone_counts_only_of_what_was_never_asked_for() -> None:
    brokers = Brokers(dict.fromkeys(NAMES, "a"))
    verifier = brokers.verifier(most=1)

    first = verified(verifier, {"a": NAMES, "b": []}, NAMES)
    assert first == dict.fromkeys(NAMES, "a")
    assert sum(brokers.asked.values()) == 1

    second = verified(verifier, {"a": NAMES, "b": []}, NAMES)
    assert NAMES[0] not in second, "it was asked for before, and it may have moved since"


def test_an_old_report_says_nothing_over_a_status() -> None:
    brokers = Brokers(dict.fromkeys(NAMES, "b"))
    verifier = brokers.verifier(most=1)

    found = verified(verifier, {"a": NAMES, "b": []}, NAMES, served="b")

    assert found == {NAMES[0]: "b"}, "they went from a to b, and a has not reported since: b's word is asked for"


def test_where_a_report_and_a_status_differ_is_asked_for_first() -> None:
    brokers = Brokers(dict.fromkeys(NAMES, "b"))

    found = verified(brokers.verifier(most=1), {"a": NAMES[7:8], "b": NAMES[:7]}, NAMES, served="b")

    assert found == {NAMES[7]: "b"}


def test_statuses_stay_as_they_are_until_brokers_answer() -> None:
    bundles = {
        "late": records.bundle("late", "a", upper="0x80000000"),
        "asked": records.bundle("asked", "a", lower="0x80000000"),
    }
    stores = SimpleNamespace(
        bundles=SimpleNamespace(items=bundles),
        topic_namespaces=SimpleNamespace(items={"t-n": records.topic_namespace()}),
    )
    context: Any = SimpleNamespace(
        stores=stores, pending_moves=SimpleNamespace(open={}), clock=lambda: 0.0, now=lambda: 0.0
    )
    late, asked = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
    brokers = Brokers({late: "a:8080", asked: "b:8080"}, reports={"b:8080": {late}}, gone={late})
    owners = OwnerSync(context, cast("Admin", brokers), Budget(1e6))

    found = asyncio.run(owners.read({"a": "a:8080", "b": "b:8080"}))

    assert [(bundle.name, status["owner"]) for bundle, status in found.changes] == [("asked", "b")]


def test_bundles_without_an_object_keep_what_was_found() -> None:
    verifier = Brokers({NAMES[0]: "a"}).verifier(most=1)

    verified(verifier, {"a": NAMES[:2], "b": []}, [])

    assert verified(verifier, {"a": NAMES[:2], "b": []}, []).keys() == set(NAMES[:2])


def test_the_next_broker_is_asked_when_one_is_silent_and_nothing_is_said_when_all_are() -> None:
    brokers = Brokers({NAMES[0]: "b"}, deaf={"a"})
    verifier = brokers.verifier()

    assert verified(verifier, {"a": [], "b": []}, NAMES[:1]) == {NAMES[0]: "b"}
    brokers.deaf = {"a", "b"}
    assert verified(verifier, {"a": [], "b": []}, NAMES[:1]) == {}


@pytest.mark.parametrize("reports", [{"a": [], "b": []}, {"a": NAMES[:1], "b": NAMES[:1]}])
def test_of_what_was_split_nothing_is_said(reports: dict[str, list[str]]) -> None:
    assert verified(Brokers(gone={NAMES[0]}).verifier(), reports, NAMES[:1]) == {}


def test_what_is_no_more_is_forgotten() -> None:
    verifier = Brokers(dict.fromkeys(NAMES, "a")).verifier()
    verified(verifier, {"a": []}, NAMES)

    verified(verifier, {"a": []}, NAMES[:2])

    assert verifier.found.keys() == set(NAMES[:2])


def test_what_cant_be_asked_for_takes_its_turn_and_no_other() -> None:
    brokers = Brokers(dict.fromkeys(NAMES, "a"), gone=set(NAMES[:6]))
    verifier = brokers.verifier(most=2)

    for _ in range(5):
        verified(verifier, {"a": NAMES[:6], "b": []}, NAMES)

    assert brokers.asked == Counter(NAMES), "each once, whether it was answered or not"


def test_what_was_never_answered_is_forgotten_too() -> None:
    brokers = Brokers(dict.fromkeys(NAMES, "a"), gone=set(NAMES[:1]))
    verifier = brokers.verifier(most=1)
    verified(verifier, {"a": []}, NAMES)
    verified(verifier, {"a": []}, NAMES[1:])

    verified(verifier, {"a": []}, NAMES)

    assert brokers.asked[NAMES[0]] == 2, "it is new again"


def test_owners_of_many_bundles_are_read_a_few_at_a_time() -> None:
    most = 0
    running = 0

    class Slow(Brokers):
        async def owner(self, bundle: str, broker: str) -> str:
            nonlocal most, running
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return await super().owner(bundle, broker)

    names = [f"t/n/{k}" for k in range(100)]
    reader = ModularOwnership(cast("Admin", Slow(dict.fromkeys(names, "a"))))

    assert asyncio.run(reader.owners_of(names, ["a"])) == dict.fromkeys(names, "a")
    assert most == LOOKUPS_AT_ONCE
