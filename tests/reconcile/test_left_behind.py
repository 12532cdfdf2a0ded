"""An owner that changed because its broker was away is no move; one that changed while the broker was there is."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from records import broker, bundle, pod
from trimtab_operator.confirm import repairs_of
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.observe.topology import CONFIRMED_WITHIN, last_unload
from trimtab_operator.reconcile.brokers import LOOKS_BACK, left_behind
from trimtab_strategies.model import Reason

NOW = 1_800_000_000.0
STRAYED = bundle(owner="x", serving="y", since=NOW - 1, assigned_at=NOW - 7200, reason="Found")
"""Its owner was x, and is y since a second ago. It was found on x two hours ago."""


def ready_since(at: float) -> tuple[dict[str, Any], ...]:
    (condition,) = broker("x").conditions
    return ({**condition, "lastTransitionTime": timestamp(at)},)


def away(
    *, found: Any = None, its_pod: Any = None, ids: Any = None, linked: bool = False, strayed: Any = STRAYED
) -> bool:
    """Whether broker x, which is `found`, was away when the bundle left it."""
    stores = SimpleNamespace(
        brokers=SimpleNamespace(items={"x": found} if found else {}),
        pods=SimpleNamespace(items={"x": its_pod} if its_pod else {}),
    )
    cluster: Any = SimpleNamespace(stores=stores, now=lambda: NOW, link=SimpleNamespace(linked=linked, ids=ids))
    return left_behind(cluster, strayed, "x")


OLD = pod("x", created=NOW - 86400, since=NOW - 86400, started=NOW - 86400.0)
THERE = broker("x", created=NOW - 86400)
PODLESS = broker("x", pod="", address="10.0.0.1:8080", created=NOW - 86400)
LISTED = {"linked": True, "ids": {"x": "10.0.0.1:8080"}}


@pytest.mark.parametrize(
    "case",
    [
        {"found": None},
        {"found": broker("x", ready=False), "its_pod": OLD},
        {"found": THERE},
        {"found": THERE, "its_pod": pod("x", ready=False)},
        {"found": THERE, "its_pod": pod("x", ready=False, deleted=True)},
        {"found": PODLESS, "linked": True, "ids": {"y": "10.0.0.2:8080"}},
        {"found": THERE, "its_pod": pod("x", created=NOW - 20, since=NOW - 8, started=NOW - 15)},
        {"found": THERE, "its_pod": pod("x", created=NOW - 86400, since=NOW - 8, started=NOW - 86400)},
        {"found": THERE, "its_pod": pod("x", created=NOW - 86400, since=NOW - 86400, started=NOW - 9)},
        {"found": broker("x", pod="", created=NOW - 86400, conditions=ready_since(NOW - 4)), **LISTED},
        {"found": broker("x", created=NOW - 30), "its_pod": OLD},
        {"found": THERE, "its_pod": pod("x", since=NOW + 20, created=NOW - 86400)},
    ],
    ids=[
        "its Broker object is gone, or has another name now",
        "it is not ready",
        "its pod is gone",
        "its pod is not ready",
        "its pod is being terminated",
        "Pulsar no longer lists it",
        "a new pod, ready again between two looks",
        "the pod was not ready for a moment",
        "a container restarted, and readiness did not notice",
        "Pulsar did not list it for a moment",
        "its Broker object was created again",
        "it came back after the bundle had left, by a clock that is ahead",
    ],
)
def test_a_broker_was_away(case: dict[str, Any]) -> None:
    assert away(**case)


@pytest.mark.parametrize(
    "case",
    [
        {"found": THERE, "its_pod": OLD},
        {"found": PODLESS, **LISTED},
        {"found": THERE, "its_pod": pod("x", created=NOW - LOOKS_BACK - 60, since=NOW - LOOKS_BACK - 30)},
        {
            "found": THERE,
            "its_pod": pod("x", created=NOW - 300, since=NOW - 280),
            "strayed": bundle(owner="x", serving="y", since=NOW - 1, assigned_at=NOW - 120, reason="Overloaded"),
        },
        {"found": THERE, "its_pod": pod("x", created=NOW + 86400, since=NOW + 86400)},
        {"found": THERE, "its_pod": OLD, "strayed": bundle(owner="x", serving="y")},
    ],
    ids=[
        "a pod that has run for a day",
        "without a pod, listed for a day",
        "it restarted long before",
        "it restarted, and got the bundle after that",
        "a time of tomorrow says nothing",
        "the time of the change is unknown",
    ],
)
def test_a_broker_was_there(case: dict[str, Any]) -> None:
    assert not away(**case)


@pytest.mark.parametrize("linked", [False, True])
def test_an_owner_that_took_over_starts_no_cool_down_and_one_that_another_client_chose_does(
    linked: bool,  # noqa: FBT001
) -> None:
    for gone, reason in ((True, Reason.FAILED_OVER), (False, Reason.ADOPTED)):
        work = repairs_of([STRAYED], (), (), linked=linked, left_behind=lambda *_, gone=gone: gone)  # type: ignore[misc]
        assert [(w.owner, w.reason) for w in work.desired_owners] == [("y", reason)]
        adopted = bundle(owner="y", reason=str(reason), assigned_at=NOW)
        assert math.isnan(last_unload(adopted)) == gone
        assert adopted.merely_seen, "nobody has to carry it out"


def test_a_bundle_that_lost_both_ends_of_a_move_fails_over() -> None:
    left = bundle(owner="", serving="z", assigned_owner="", reason="BrokerLost")

    assert [w.reason for w in repairs_of([left], (), (), linked=True).desired_owners] == [Reason.FAILED_OVER]


def test_a_bundle_object_that_was_created_again_from_a_copy_is_found_where_it_is() -> None:
    created = timestamp(NOW - 30)
    copy = bundle(owner="x", serving="y", reason="Adopted", assigned_at=NOW - 3600, generation=1, created=created)
    fresh = bundle(owner="x", serving="y", reason="Found", assigned_at=NOW - 35, generation=1, created=created)

    work = repairs_of([copy, fresh], (), (), linked=True)
    assert [w.reason for w in work.desired_owners] == [Reason.FOUND, Reason.ADOPTED]


def test_a_broker_that_takes_its_bundles_again_does_not_renew_the_cool_down_of_a_person_s_move() -> None:
    moved = NOW - 86400
    taken_again = bundle(owner="x", reason="Admin", assigned_at=moved, since=NOW)

    assert last_unload(taken_again) == moved + CONFIRMED_WITHIN
    assert last_unload(bundle(owner="x", reason="Admin", assigned_at=NOW - 60, since=NOW)) == NOW
