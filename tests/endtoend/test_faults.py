"""When something is wrong: a clear condition, an Event, no harmful move, and recovery without a restart."""

from __future__ import annotations

import pytest

from faulty_proxy import Fault
from manifests import policy
from small_cluster import API, SmallCluster, until

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.spark]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.DOWN, "SourceUnavailable"),
        (Fault.SLOW, "SourceUnavailable"),
        (Fault.UNAVAILABLE, "SourceUnavailable"),
    ],
)
def test_while_prometheus_does_not_answer_nothing_moves(stage: SmallCluster, fault: Fault, reason: str) -> None:
    before = stage.owners()
    stage.proxy.fault = fault
    stage.apply_policy(mode="Auto")

    message = stage.wait_condition("DataTrusted", "False", reason)
    stage.wait_cycles(2)

    assert stage.proxy.url in message
    assert stage.owners() == stage.desired_owners() == before
    assert any(stage.proxy.url in note for note in stage.events(reason))
    pid = stage.operator.pid

    stage.proxy.fault = Fault.NONE

    stage.wait_condition("DataTrusted", "True")
    until("the cluster is balanced after all", lambda: stage.owners() != before)
    assert stage.operator.pid == pid


def test_partial_answers_are_reported_and_move_nothing(stage: SmallCluster) -> None:
    before = stage.owners()
    stage.proxy.fault = Fault.PARTIAL
    stage.apply_policy(mode="Auto")

    stage.wait_condition("DataTrusted", "False")
    stage.wait_cycles(2)

    assert stage.owners() == stage.desired_owners() == before

    stage.proxy.fault = Fault.NONE

    stage.wait_condition("DataTrusted", "True")


def test_a_broker_whose_metrics_stop_neither_sheds_nor_receives(stage: SmallCluster) -> None:
    hot = "pulsar-broker-0"
    before = stage.bundles_of(hot)
    stage.world.mute_metrics(hot)
    try:
        stage.apply_policy(limits={"minTrustedBrokersPercent": 50})
        message = stage.wait_condition("DataTrusted", "False", "Untrusted")
        stage.edit_policy(mode="Auto")
        stage.wait_cycles(3)
    finally:
        stage.world.unmute_metrics(hot)

    assert hot in message
    assert stage.bundles_of(hot) == before
    stage.wait_condition("DataTrusted", "True")
    until("the hot broker sheds once it is measured again", lambda: stage.bundles_of(hot) != before)


def test_too_few_trusted_brokers_refuse_the_whole_cycle(stage: SmallCluster) -> None:
    before = stage.owners()
    stage.world.mute_metrics("pulsar-broker-2")
    try:
        stage.apply_policy(mode="DryRun", limits={"minTrustedBrokersPercent": 90})
        message = stage.wait_condition("Ready", "False")
        stage.edit_policy(mode="Auto")
        stage.wait_cycles(2)
        assert stage.owners() == before
    finally:
        stage.world.unmute_metrics("pulsar-broker-2")

    assert "limits.minTrustedBrokersPercent" in message
    stage.wait_condition("Ready", "True")


def test_a_policy_that_only_the_operator_can_refuse_is_refused_in_its_status(stage: SmallCluster) -> None:
    stage.apply_policy(interval="0s")

    message = stage.wait_condition("Valid", "False", "InvalidPolicy")

    assert "spec.interval" in message
    assert "longer than 0s" in message
    assert any("spec.interval" in note for note in stage.events("InvalidPolicy"))

    stage.edit_policy(interval="2s")

    stage.wait_condition("Ready", "True")


def test_a_policy_naming_a_broker_that_does_not_exist_moves_nothing(stage: SmallCluster) -> None:
    before = stage.owners()
    stage.apply_policy(mode="Auto", brokers={"names": ["pulsar-broker-0", "pulsar-broker-9"]})

    message = stage.wait_condition("Valid", "False", "UnknownBroker")

    assert "pulsar-broker-9" in message
    assert stage.owners() == before

    stage.edit_policy(brokers={"names": ["pulsar-broker-0", "pulsar-broker-1"]})

    stage.wait_condition("Valid", "True")


def test_a_second_policy_for_the_same_brokers_is_refused_naming_both(stage: SmallCluster) -> None:
    stage.apply_policy()
    stage.wait_condition("Ready", "True")
    second = policy("second", **(stage.policy() or {})["spec"])
    stage.rest.create(f"{API}/balancingpolicies", second)
    try:

        def refusal() -> str:
            conditions = stage.rest.get(f"{API}/balancingpolicies/second").get("status", {}).get("conditions", [])
            return next((c["message"] for c in conditions if c["type"] == "Valid" and c["status"] == "False"), "")

        message = until("the second policy is refused", refusal)
        assert "policy" in message
        assert "second" in message
        assert stage.condition("Ready")[0] == "True"
    finally:
        stage.rest.delete(f"{API}/balancingpolicies/second")


def test_a_broker_that_does_not_take_its_bundle_loses_the_desired_owner(stage: SmallCluster) -> None:
    name = stage.bundles_of("pulsar-broker-0")[0]
    stage.apply_policy()
    stage.wait_condition("Ready", "True")
    stage.world.deafen("pulsar-broker-0")
    try:
        stage.patch_bundle(name, owner="pulsar-broker-1")
        until("the move has timed out", lambda: any(name in note for note in stage.events("TimedOut")))
        until("the desired owner is reset", lambda: stage.desired_owners()[name] == "pulsar-broker-0")
    finally:
        stage.world.undeafen("pulsar-broker-0")

    until("nothing is left open", stage.settled)
    assert stage.owners()[name] == "pulsar-broker-0"


def test_a_dead_brokers_bundles_get_other_owners_in_every_mode(stage: SmallCluster) -> None:
    orphans = stage.bundles_of("pulsar-broker-0")
    stage.apply_policy(mode="DryRun")
    stage.wait_condition("Ready", "True")
    stage.world.kill("pulsar-broker-0")
    try:
        until(
            "all of its bundles are served by others",
            lambda: all(owner and owner != "pulsar-broker-0" for owner in stage.owners().values()),
        )
        assert orphans
        until("each owner is the desired one", stage.settled)
    finally:
        stage.world.revive("pulsar-broker-0")
    until("the broker is back", lambda: stage.rest.get(f"{API}/brokers/pulsar-broker-0")["status"]["ready"])


def test_when_most_brokers_are_gone_at_once_their_bundles_stay(stage: SmallCluster) -> None:
    before = stage.owners()
    stage.apply_policy(mode="Auto", limits={"maxLostBrokersPercent": 40})
    stage.wait_condition("Valid", "True")
    stage.edit_policy(paused=True)
    stage.wait_condition("Ready", "False", "Paused")
    before = until("no move is under way", lambda: stage.settled() and stage.owners())
    for broker in ("pulsar-broker-0", "pulsar-broker-1"):
        stage.world.kill(broker)
    try:
        until("the brake is told", lambda: stage.events("MassFailure"))
        assert stage.owners() == stage.desired_owners() == before
    finally:
        for broker in ("pulsar-broker-0", "pulsar-broker-1"):
            stage.world.revive(broker)


def test_the_operator_outlives_a_restart_of_the_api_server(stage: SmallCluster) -> None:
    stage.apply_policy()
    stage.wait_condition("Ready", "True")
    pid, name = stage.operator.pid, stage.bundles_of("pulsar-broker-0")[0]

    stage.control_plane.restart_apiserver(down=1)
    stage.patch_bundle(name, owner="pulsar-broker-2")

    until("the desired owner is carried out", lambda: stage.owners()[name] == "pulsar-broker-2", within=60)
    stage.wait_cycles(2)
    assert stage.condition("Ready")[0] == "True"
    assert stage.operator.running
    assert stage.operator.pid == pid


def test_sigterm_in_the_middle_of_a_cycle_leaves_every_bundle_owned(stage: SmallCluster) -> None:
    stage.proxy.fault = Fault.SLOW
    stage.apply_policy(mode="Auto", source={"prometheus": {"url": stage.proxy.url, "window": "4s", "timeout": "20s"}})
    until("a cycle is waiting for Prometheus", lambda: stage.proxy.waiting)

    code = stage.operator.stop(within=10)

    try:
        assert code == 0
        assert all(stage.owners().values())
        assert stage.settled()
    finally:
        stage.proxy.fault = Fault.NONE
        stage.operator.start()

    stage.wait_condition("DataTrusted", "True")
