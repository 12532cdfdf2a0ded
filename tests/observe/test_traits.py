"""What is asked for namespaces and said of brokers becomes what the strategies read."""

from __future__ import annotations

from typing import Any

import pytest

from records import broker, pod, topic_namespace
from trimtab_operator.kube.move_costs import Interruption, MoveCosts
from trimtab_operator.observe.topology import ZONE, policies, publish_gaps, traits
from trimtab_operator.reconcile.namespaces import examined
from trimtab_strategies.model import NamespacePolicy

SHOP = NamespacePolicy(anti_affinity_group="shop")
BANK = NamespacePolicy(anti_affinity_group="bank")
NOON = 1_769_860_800.0


def test_namespaces_that_ask_for_nothing_are_left_out() -> None:
    asking = topic_namespace("shop", full_name="shop/orders", policy=SHOP)

    assert policies([topic_namespace(), asking]) == {"shop/orders": SHOP}


@pytest.mark.parametrize(
    ("first", "second", "counts"), [(0, 4, BANK), (4, 0, SHOP), (0, 0, SHOP)], ids=["second", "first", "neither"]
)
def test_of_two_objects_for_one_namespace_the_one_with_its_bundles_counts(
    first: int, second: int, counts: NamespacePolicy
) -> None:
    spaces = [topic_namespace("b", policy=BANK, bundles=second), topic_namespace("a", policy=SHOP, bundles=first)]

    assert policies(spaces) == policies(reversed(spaces)) == {"t/n": counts}


def test_an_object_that_asks_for_nothing_counts_too_when_it_has_the_bundles() -> None:
    assert policies([topic_namespace("a", bundles=4), topic_namespace("b", policy=SHOP, bundles=0)]) == {}


@pytest.mark.parametrize(
    ("said", "labels", "domain"),
    [("", {ZONE: "north"}, "north"), ("rack-7", {ZONE: "north"}, "rack-7"), ("rack-7", {}, "rack-7")],
    ids=["from the pod", "what is said counts more", "said"],
)
def test_a_broker_fails_with_what_it_says_or_else_with_the_zone_of_its_pod(
    said: str, labels: dict[str, str], domain: str
) -> None:
    found = traits([broker(failure_domain=said)], {"x": pod(labels=labels)})

    assert found["x"].failure_domain == domain


def test_brokers_of_which_nothing_is_known_have_no_traits() -> None:
    assert traits([broker(), broker("y", pod="")], {"x": pod()}) == {}


def test_a_broker_started_with_its_pod() -> None:
    found = traits([broker(), broker("y", pod="")], {"x": pod(started=1000.0)})

    assert {name: known.started for name, known in found.items()} == {"x": 1000.0}


def test_a_broker_that_does_not_name_its_load_manager_is_taken_to_run_the_one_asked_for() -> None:
    silent, other = broker(version="4.2.4"), broker("y", load_manager="Theirs")

    found = traits([silent, other], {}, load_manager="Ours")

    assert {name: known.load_manager for name, known in found.items()} == {"x": "Ours", "y": "Theirs"}


def condition(status: str, reason: str, message: str, **changes: Any) -> dict[str, Any]:
    told = {"type": "Valid", "status": status, "reason": reason, "message": message, "observedGeneration": 1}
    return {**told, "lastTransitionTime": "2026-01-31T11:00:00Z", **changes}


def test_a_namespace_that_was_never_wrong_gets_no_condition() -> None:
    assert examined(topic_namespace(), "", NOON) is None


def test_a_problem_becomes_a_condition_and_its_end_as_well() -> None:
    (wrong,) = examined(topic_namespace(), "names nobody", NOON) or ()
    (mended,) = examined(topic_namespace(conditions=(wrong,), generation=2), "", NOON) or ()

    assert (wrong["status"], wrong["reason"], wrong["message"]) == ("False", "InvalidPolicy", "names nobody")
    assert (mended["status"], mended["observedGeneration"]) == ("True", 2)


def test_what_a_condition_says_already_is_not_said_again() -> None:
    told = condition("False", "InvalidPolicy", "names nobody")

    assert examined(topic_namespace(conditions=(told,)), "names nobody", NOON) is None
    assert examined(topic_namespace(conditions=(told,), generation=2), "names nobody", NOON) is not None


def test_a_problem_too_long_to_store_is_cut() -> None:
    (told,) = examined(topic_namespace(), "x" * 40_000, NOON) or ()

    assert len(told["message"]) == 1024


def test_a_publish_gap_counts_from_three_measured_moves_on() -> None:
    moves = (Interruption(0.5, 1.0), Interruption(2.0, 2.0), Interruption(None, 9.0), Interruption(1.5, 2.0))
    costs = {"t/known": MoveCosts(moves), "t/new": MoveCosts(moves[:3]), "t/silent": MoveCosts()}

    assert publish_gaps(costs) == {"t/known": 1.5}
