"""A Prometheus that shows other brokers than Pulsar is not trusted: a condition says so, and nothing moves."""

from __future__ import annotations

from real_pulsar.clients import Flow, topics_of
from real_pulsar.settings import LoadManagerKind
from real_pulsar_cluster import BY_RATE, RealPulsarCluster, only
from small_cluster import until


def _told(stage: RealPulsarCluster) -> bool:
    """Whether the policy says that no broker is trusted, and why."""
    status, reason, message = stage.condition("DataTrusted")
    words = ("Prometheus shows", "msg/s in and out, and the broker reports")
    return (status, reason) == ("False", "Untrusted") and all(word in message for word in words)


@only(LoadManagerKind.MODULAR)
def test_brokers_that_prometheus_takes_for_one_another_are_not_trusted_and_nothing_moves(
    stage: RealPulsarCluster,
) -> None:
    namespace, (first, second, third) = stage.new_namespace(4, "shown"), stage.names
    bundles = stage.admin.bundles(namespace)
    for bundle in bundles:
        stage.put(bundle, first)
    flows = [Flow(topics_of(bundle, 1)[0], 50) for bundle in bundles]

    with stage.hasty(), stage.witness(namespace) as witness, stage.traffic(flows):
        stage.show_as(second, first, third)
        stage.apply_policy(mode="DryRun", **BY_RATE)
        until("it is told what is wrong", lambda: _told(stage), within=120)
        stage.edit_policy(mode="Auto")
        stage.wait_cycles(4)
        assert stage.condition("DataTrusted")[:2] == ("False", "Untrusted")
        assert stage.condition("Acting")[:2] == ("False", "Untrusted")
        assert witness.moves() == []
        assert set(stage.truth(namespace).values()) == {first}

        stage.show_as(*stage.names)
        stage.wait_condition("DataTrusted", "True", within=90)
        until("bundles leave the hot broker", lambda: set(stage.truth(namespace).values()) != {first}, within=90)
