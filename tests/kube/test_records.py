"""What is kept of Bundle, Broker and Pod objects, and the rules of conditions."""

from __future__ import annotations

import math
from typing import Any

import pytest

from manifests import broker, bundle, topic_namespace
from trimtab_operator.kube.broker_records import NodeRecord, PodRecord, broker_record, node_record, pod_record
from trimtab_operator.kube.conditions import epoch, micro_timestamp, set_condition, timestamp
from trimtab_operator.kube.records import bundle_record, topic_namespace_record
from trimtab_operator.resources.conditions import PolicyCondition
from trimtab_strategies.model import NO_POLICY, Isolation, NamespacePolicy

NOON = 1_769_860_800.0


def stored(manifest: dict[str, Any], *, generation: int = 1, status: dict[str, Any] | None = None) -> dict[str, Any]:
    """A manifest as the API server returns it."""
    meta = {**manifest["metadata"], "generation": generation, "resourceVersion": "42", "uid": "u"}
    return {**manifest, "metadata": meta, **({} if status is None else {"status": status})}


def test_a_bundle_no_one_was_asked_to_own_has_no_open_desired_owner() -> None:
    record = bundle_record(stored(bundle()))
    assert (record.owner, record.status_owner, record.state) == ("", "", "Free")
    assert not record.owner_pending
    assert math.isnan(record.since)
    assert math.isnan(record.assigned_at)


def test_a_desired_owner_is_open_until_its_generation_was_observed() -> None:
    serving = {"owner": "x", "state": "Owned", "since": timestamp(NOON), "observedGeneration": 3}
    assert bundle_record(stored(bundle(owner="y"), generation=4, status=serving)).owner_pending
    assert not bundle_record(stored(bundle(owner="x"), generation=3, status=serving)).owner_pending


def test_a_bundle_record_holds_who_decided() -> None:
    assignment = {"owner": "y", "policy": "main", "epoch": 2, "reason": "Overloaded", "time": timestamp(NOON)}
    record = bundle_record(stored(bundle(owner="y", assignment=assignment, pinned=True)))
    assert (record.assigned_owner, record.reason, record.assigned_at) == ("y", "Overloaded", NOON)
    assert (record.lower, record.upper, record.topic_namespace) == ("0x00000000", "0x40000000", "public-default")
    assert record.pinned


def test_names_shared_by_bundles_are_one_string() -> None:
    one, other = (bundle_record(stored(bundle(name, owner="-".join(["broker", str(1)])))) for name in ("a", "b"))
    assert one.owner is other.owner


def test_a_record_read_twice_is_the_same() -> None:
    assert bundle_record(stored(bundle())) == bundle_record(stored(bundle()))


def test_a_broker_record_holds_what_was_declared_and_seen() -> None:
    status = {"ready": False, "bundles": 3, "load": {"cpu": 80, "memory": None}}
    raw = stored(broker(pod="p", capacity={"cpu": 4, "networkIn": 1e9}, schedulable=False), status=status)
    record = broker_record(raw)
    assert (record.pod, record.ready, record.schedulable, record.bundles) == ("p", False, False, 3)
    assert (record.capacity, record.load) == ({"cpu": 4.0, "networkIn": 1e9}, {"cpu": 80.0})


def test_a_broker_record_holds_what_the_broker_is() -> None:
    record = broker_record(stored(broker(pod="p", failureDomain="north", version="4.2.4", loadManager="Mine")))
    assert (record.failure_domain, record.version, record.load_manager) == ("north", "4.2.4", "Mine")


def test_a_topic_namespace_record_holds_what_is_asked_for_its_bundles() -> None:
    isolation = {"primary": ["a"], "secondary": ["b", "c"], "minAvailable": 2}
    raw = stored(topic_namespace(isolation=isolation, antiAffinityGroup="shop", balanced=False), status={"bundles": 4})
    record = topic_namespace_record(raw)
    assert record.policy == NamespacePolicy(Isolation(("a",), ("b", "c"), 2), "shop", unload=False)
    assert (record.full_name, record.bundles) == ("public/default", 4)


def test_a_topic_namespace_that_asks_for_nothing_has_no_policy() -> None:
    assert topic_namespace_record(stored(topic_namespace())).policy == NO_POLICY


def test_a_new_broker_is_not_ready_and_may_be_used() -> None:
    record = broker_record(stored(broker()))
    assert (record.ready, record.schedulable, record.capacity, record.load) == (False, True, {}, {})


@pytest.mark.parametrize(
    ("ready", "deleted", "expected"), [("True", False, True), ("False", False, False), ("True", True, False)]
)
def test_a_pod_is_ready_when_it_says_so_and_is_not_ending(ready: str, deleted: bool, expected: bool) -> None:  # noqa: FBT001
    meta = {"name": "p", "labels": {"app": "pulsar"}, **({"deletionTimestamp": "now"} if deleted else {})}
    record = pod_record({"metadata": meta, "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    assert (record.ready, record.deleted, record.labels) == (expected, deleted, {"app": "pulsar"})


def test_a_pod_without_a_status_is_not_ready() -> None:
    assert not pod_record({"metadata": {"name": "p"}}).ready


def test_a_condition_keeps_its_transition_time_until_its_status_flips() -> None:
    first = set_condition([], PolicyCondition.READY, "True", "Balanced", "fine", 1, NOON)
    later = set_condition(first, PolicyCondition.READY, "True", "Overloaded", "moving", 2, NOON + 60)
    assert later[0]["lastTransitionTime"] == timestamp(NOON)
    assert (later[0]["reason"], later[0]["observedGeneration"]) == ("Overloaded", 2)
    flipped = set_condition(later, PolicyCondition.READY, "False", "NoLoadData", "", 2, NOON + 120)
    assert flipped[0]["lastTransitionTime"] == timestamp(NOON + 120)


def test_conditions_of_others_stay_where_they_are() -> None:
    others = [
        {"type": "A", "status": "True", "x": 1},
        {"type": "Ready", "status": "True"},
        {"type": "Z", "status": "?"},
    ]
    changed = set_condition(others, PolicyCondition.READY, "False", "Paused", "", 1, NOON)
    assert [condition["type"] for condition in changed] == ["A", "Ready", "Z"]
    assert (changed[0], changed[2]) == (others[0], others[2])
    assert others[1]["status"] == "True"


def test_a_condition_of_a_newer_generation_is_not_overwritten() -> None:
    newer = set_condition([], PolicyCondition.READY, "True", "Balanced", "", 5, NOON)
    assert set_condition(newer, PolicyCondition.READY, "False", "Paused", "", 4, NOON) == newer


def test_times_are_written_and_read_in_utc() -> None:
    assert timestamp(NOON + 0.9) == "2026-01-31T12:00:00Z"
    assert micro_timestamp(NOON + 0.5) == "2026-01-31T12:00:00.500000Z"
    assert epoch("2026-01-31T13:00:00+01:00") == NOON


@pytest.mark.parametrize("text", [None, "", "yesterday"])
def test_a_time_that_is_absent_or_unreadable_is_nan(text: str | None) -> None:
    assert math.isnan(epoch(text))


def discovered(**spec: Any) -> bool:
    raw = stored(broker(pod="p", **spec))
    raw["metadata"]["labels"] = {"trimtab.dev/discovered": "true"}
    return broker_record(raw).discovered


def test_a_broker_that_a_person_set_something_in_is_no_longer_the_discoverys() -> None:
    assert discovered()
    assert discovered(schedulable=True, failureDomain="", version="", loadManager="")
    assert not discovered(schedulable=False)
    assert not discovered(weight=2)
    assert not broker_record(stored(broker(pod="p"))).discovered


def test_a_pod_started_with_the_newest_of_its_containers_or_else_as_a_whole() -> None:
    def running(second: float) -> dict[str, Any]:
        return {"state": {"running": {"startedAt": timestamp(NOON + second)}}}

    waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    raw: Any = {"metadata": {"name": "p"}, "status": {"startTime": timestamp(NOON)}}

    assert pod_record(raw).started == NOON
    raw["status"]["containerStatuses"] = [running(5), waiting, running(90)]
    assert pod_record(raw).started == NOON + 90
    assert pod_record({"metadata": {"name": "p"}}).started is None


def test_a_pod_that_started_again_is_another_one_even_if_it_was_never_seen_unready() -> None:
    def seen(second: float) -> PodRecord:
        return pod_record({"metadata": {"name": "p"}, "status": {"startTime": timestamp(NOON + second)}})

    assert seen(0) == seen(0)
    assert seen(0) != seen(5)


def test_a_pod_was_last_heard_of_when_it_became_ready_or_was_asked_to_stop() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(NOON + 30)}
    meta = {"name": "p", "creationTimestamp": timestamp(NOON)}
    raw: Any = {"metadata": meta, "spec": {"nodeName": "n"}, "status": {"conditions": [ready]}}

    assert (pod_record(raw).created, pod_record(raw).since, pod_record(raw).node) == (NOON, NOON + 30, "n")
    meta["deletionTimestamp"] = timestamp(NOON + 90)
    assert pod_record(raw).since == NOON + 90


def test_a_node_is_cordoned_when_it_takes_no_pods() -> None:
    assert node_record({"metadata": {"name": "n"}, "spec": {"unschedulable": True}}) == NodeRecord("n", cordoned=True)
    assert not node_record({"metadata": {"name": "n"}}).cordoned
