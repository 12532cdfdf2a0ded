"""On real brokers Pulsar's own balancing is switched off, kept off, and restored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from real_pulsar.settings import LoadManagerKind
from real_pulsar_cluster import RealPulsarCluster, only
from small_cluster import API, NAMESPACE, until
from trimtab_operator.cli import main
from trimtab_testbed.servers.kube_rest import KubeApiError

SHEDDING, SPLITTING = "loadBalancerSheddingEnabled", "loadBalancerAutoBundleSplitEnabled"
MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps/trimtab-pulsar-found"


@pytest.fixture
def balancer(stage: RealPulsarCluster) -> Iterator[RealPulsarCluster]:
    """The cluster, with Pulsar's own shedding on by a dynamic value, which is dropped afterwards."""
    switch(stage, SHEDDING, "true")
    yield stage
    for name in (SHEDDING, SPLITTING):
        stage.admin.send("DELETE", f"/admin/v2/brokers/configuration/{name}")


def switch(stage: RealPulsarCluster, name: str, value: str) -> None:
    stage.admin.send("POST", f"/admin/v2/brokers/configuration/{name}/{value}")


def dynamic(stage: RealPulsarCluster) -> dict[str, str]:
    found: dict[str, str] = stage.admin.send("GET", "/admin/v2/brokers/configuration/values")
    return {name: found[name] for name in (SHEDDING, SPLITTING) if name in found}


def running(stage: RealPulsarCluster, name: str = SHEDDING) -> set[str]:
    """The value with which the brokers run."""
    brokers = range(len(stage.names))
    return {stage.cluster.rest(n).runtime()[name] for n in brokers if stage.cluster.running(n)}


def kept(stage: RealPulsarCluster) -> bool:
    try:
        stage.rest.get(MAP)
    except KubeApiError:
        return False
    return True


def policy(stage: RealPulsarCluster) -> dict[str, Any]:
    found: dict[str, Any] = stage.rest.get(f"{API}/balancingpolicies/policy")
    return found


def hand(stage: RealPulsarCluster) -> Callable[[], str]:
    """The texts of the condition, each time."""

    def found() -> str:
        conditions = policy(stage).get("status", {}).get("conditions", [])
        return next((c["status"] for c in conditions if c["type"] == "PulsarBalancerDisabled"), "")

    return found


def test_it_is_verified_switched_off_kept_off_and_put_back_when_the_policy_goes(balancer: RealPulsarCluster) -> None:
    condition = hand(balancer)
    balancer.apply_policy(mode="Auto")
    until("Pulsar's own balancer is seen to be active", lambda: condition() == "False")
    assert running(balancer) == {"true"}

    balancer.rest.patch(f"{API}/balancingpolicies/policy", {"spec": {"pulsar": {"ownBalancing": "SwitchOff"}}})
    until("it is off", lambda: condition() == "True")
    assert running(balancer) == {"false"}
    assert kept(balancer)

    switch(balancer, SHEDDING, "true")  # without telling the operator
    until("it is off again", lambda: running(balancer) == {"false"})
    until("and known to be", lambda: condition() == "True")

    balancer.drop_policy()
    assert dynamic(balancer) == {SHEDDING: "true"}
    assert not kept(balancer)
    assert running(balancer) == {"true"}


@only(LoadManagerKind.MODULAR)
def test_a_dry_run_touches_nothing_and_gives_back_what_auto_took(balancer: RealPulsarCluster) -> None:
    balancer.apply_policy(mode="DryRun", pulsar={"ownBalancing": "SwitchOff"})
    until("Pulsar's own balancer is seen to be active", lambda: hand(balancer)() == "False")
    assert dynamic(balancer) == {SHEDDING: "true"}

    balancer.rest.patch(f"{API}/balancingpolicies/policy", {"spec": {"mode": "Auto"}})
    until("it is off", lambda: running(balancer) == {"false"})
    balancer.rest.patch(f"{API}/balancingpolicies/policy", {"spec": {"mode": "DryRun"}})
    until("it is back", lambda: running(balancer) == {"true"})
    until("nothing is kept", lambda: not kept(balancer))


@only(LoadManagerKind.EXTENSIBLE)
def test_restore_puts_it_back_once_the_operator_is_dead(
    balancer: RealPulsarCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    balancer.apply_policy(mode="Auto", pulsar={"ownBalancing": "SwitchOff"})
    until("it is off", lambda: running(balancer) == {"false"})
    until("that is told", lambda: hand(balancer)() == "True")
    balancer.operator.kill()
    words = ["restore", "-n", NAMESPACE, "--kubeconfig", str(balancer.control_plane.kubeconfig)]
    words += ["--allow-url", "http://127.0.0.1:*"]

    assert main([*words, "--dry-run"]) == 0
    assert running(balancer) == {"false"}
    assert main(words) == 0

    until("it is back", lambda: running(balancer) == {"true"})
    assert dynamic(balancer) == {SHEDDING: "true"}
    assert not kept(balancer)
    meta = policy(balancer)["metadata"]
    assert "trimtab.dev/finalizer" not in meta.get("finalizers", [])
    assert main(words) == 0
    assert "restored already" in capsys.readouterr().out
