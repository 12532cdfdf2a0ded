"""Broker objects follow the pods a policy selects."""

from __future__ import annotations

from typing import Any

import pytest

from records import broker, pod
from trimtab_operator.reconcile.brokers import Changes, discover

SELECTOR = {"app": "pulsar", "component": "broker"}


def fields(changes: Changes) -> list[tuple[str, dict[str, Any]]]:
    """The status changes without conditions."""
    found = [(name, {key: status[key] for key in status if key != "conditions"}) for name, status in changes.status]
    return [(name, status) for name, status in found if status]


def ready(changes: Changes, name: str = "x") -> tuple[str, str, str]:
    """Status, reason and message of the condition `Ready` that is written."""
    (found,) = [c for c in dict(changes.status)[name]["conditions"] if c["type"] == "Ready"]
    return found["status"], found["reason"], found["message"]


def test_a_selected_pod_gets_a_broker_of_its_name() -> None:
    changes = discover([pod("x"), pod("zk", labels={"app": "zookeeper"})], {}, [SELECTOR], now=0)

    assert [manifest["metadata"]["name"] for manifest in changes.create] == ["x"]
    assert changes.create[0]["spec"] == {"pod": "x"}
    assert fields(changes) == [("x", {"ready": True})], "it counts as ready at once, not as lost first"


def test_a_new_broker_is_ready_as_soon_as_a_linked_pulsar_lists_it() -> None:
    """If it were ready before, it would seem to die in the next discovery."""
    unlisted = discover([pod("x")], {}, [SELECTOR], now=0, ids={"y": "h:80"})
    assert ([manifest["metadata"]["name"] for manifest in unlisted.create], unlisted.status) == (["x"], [])

    listed = discover([pod("x")], {}, [SELECTOR], now=0, ids={"x": "h:80"})
    assert fields(listed) == [("x", {"ready": True})]
    assert ready(listed) == ("True", "Serving", "pod x is ready; Pulsar lists it")


def test_a_pod_that_has_a_broker_gets_no_second_one() -> None:
    assert discover([pod("x")], {"other": broker("other", pod="x")}, [SELECTOR], now=0).create == []


def test_readiness_follows_the_pod() -> None:
    brokers = {"x": broker("x"), "y": broker("y", ready=False)}

    changes = discover([pod("x", ready=False), pod("y")], brokers, [], now=0)

    assert fields(changes) == [("x", {"ready": False, "lastSeen": "1970-01-01T00:00:00Z"}), ("y", {"ready": True})]


def test_a_broker_whose_pod_is_gone_stays_and_is_not_ready() -> None:
    changes = discover([], {"x": broker("x")}, [SELECTOR], now=0)

    assert changes.create == []
    assert [name for name, status in changes.status if not status["ready"]] == ["x"]


def test_a_declared_broker_without_a_pod_is_ready() -> None:
    changes = discover([], {"x": broker("x", pod="", ready=False)}, [], now=0)

    assert fields(changes) == [("x", {"ready": True})]
    assert ready(changes) == ("True", "Serving", "it was declared without a pod")


def test_nothing_changed_writes_nothing() -> None:
    changes = discover([pod("x")], {"x": broker("x")}, [SELECTOR], now=0)

    assert (changes.create, changes.status) == ([], [])


def test_the_generation_of_every_broker_is_observed_in_the_same_write() -> None:
    """Helm's --wait, Flux and kstatus take a Broker for current only when its status speaks of its generation."""
    edited = broker("x", pod="", ready=False, generation=3, observed_generation=2)

    changes = discover([], {"x": edited}, [], now=0)

    assert fields(changes) == [("x", {"ready": True, "observedGeneration": 3})]
    assert [c["observedGeneration"] for c in changes.status[0][1]["conditions"]] == [3]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (discover([pod("x", ready=False)], {"x": broker("x")}, [], now=0), "pod x is not ready"),
        (discover([], {"x": broker("x")}, [], now=0), "pod x does not exist"),
        (discover([pod("x")], {"x": broker("x")}, [], now=0, ids={}), "Pulsar does not list it as an active broker"),
    ],
    ids=["pod not ready", "pod gone", "not in Pulsar"],
)
def test_a_broker_that_is_not_ready_says_what_is_missing(changes: Changes, said: str) -> None:
    assert ready(changes) == ("False", "NotReady", said)


def test_a_broker_that_pulsar_lists_is_ready_without_its_pod() -> None:
    changes = discover([], {"x": broker("x", ready=False)}, [], now=0, ids={"x": "h:80"})

    assert ready(changes) == ("True", "Serving", "Pulsar lists it")


def test_the_time_of_a_condition_is_that_of_its_last_transition() -> None:
    """The message changes when Pulsar is linked, and the broker was ready all along."""
    changes = discover([pod("x")], {"x": broker("x")}, [], now=100, ids={"x": "h:80"})

    assert ready(changes) == ("True", "Serving", "pod x is ready; Pulsar lists it")
    assert dict(changes.status)["x"]["conditions"][0]["lastTransitionTime"] == "1970-01-01T00:00:00Z"


def test_a_discovered_broker_is_deleted_once_its_pod_is_forgotten() -> None:
    brokers = {name: broker(name, ready=False, discovered=True) for name in "xy"} | {"z": broker("z", ready=False)}

    changes = discover([pod("y")], brokers, [SELECTOR], now=0, forgotten={"x", "y", "z"})

    assert [found.name for found in changes.delete] == ["x"], "y's pod is back, z is a person's"
    assert "x" not in dict(changes.status)


def test_a_broker_that_is_made_for_a_pod_says_so() -> None:
    (manifest,) = discover([pod("x")], {}, [SELECTOR], now=0).create

    assert manifest["metadata"]["labels"] == {"trimtab.dev/discovered": "true"}
