"""`trimtab plan` and `observe` with pods as Pulsar's own Helm chart makes them, and no container named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from chart_pods import LABELS, chart_pod
from fake_prometheus import FakePrometheus
from policy_environment import PolicyEnvironment
from strategy_testing.clusters import cluster
from trimtab_operator.cli import main
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

Captured = pytest.CaptureFixture[str]
BUSY, IDLE = "pulsar-broker-0", "pulsar-broker-1"
CORES = {BUSY: 1.5, IDLE: 0.3}


@pytest.fixture(autouse=True)
def _in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is folded there; pytest-xdist tells its workers a width."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def env(trimtab_crds: ControlPlane, kube_namespace: str) -> PolicyEnvironment:
    """Two brokers of the chart with eight bundles."""
    load = cluster(bundles={BUSY: [1] * 4, IDLE: [1] * 4}, **{BUSY: 0.75, IDLE: 0.15})
    env = PolicyEnvironment(trimtab_crds, kube_namespace, load)
    env.build()
    return env


@pytest.fixture
def fake(env: PolicyEnvironment) -> Iterator[FakePrometheus]:
    """What the kubelet, kube-state-metrics and the brokers export about them."""
    with FakePrometheus() as server:
        for row, (pod, cores) in enumerate(CORES.items()):
            where = {"namespace": env.namespace, "pod": pod}
            for container in ("pulsar-broker", ""):
                server.put("container_cpu_usage_seconds_total", cores, **where, container=container)
                server.put("container_memory_working_set_bytes", 2**30, **where, container=container)
            for name in ("receive", "transmit"):
                server.put(f"container_network_{name}_bytes_total", 1e6, **where, interface="eth0")
            for name, value in {"rate_in": 10, "rate_out": 10, "throughput_in": 1e4, "throughput_out": 1e4}.items():
                server.put(f"pulsar_broker_{name}", value, **where, container="pulsar-broker")
            for full in env.load.bundles.names[4 * row : 4 * row + 4]:
                for name in ("rate_in", "rate_out", "throughput_in", "throughput_out"):
                    server.put(f"pulsar_bundle_msg_{name}", 100, **where, bundle=full)
        yield server


def put_pods(env: PolicyEnvironment, **changes: Any) -> None:
    for ordinal in (0, 1):
        pod = chart_pod(ordinal, **changes)
        path = f"/api/v1/namespaces/{env.namespace}/pods"
        for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
            container.setdefault("image", "pulsar")
        env.rest.create(path, pod)
        env.rest.patch(f"{path}/{pod['metadata']['name']}/status", {"status": pod["status"]})


def observed(env: PolicyEnvironment, capsys: Captured) -> dict[str, Any]:
    words = ["--policy", "main", "-n", env.namespace, "--kubeconfig", env.kubeconfig, "-o", "json"]
    assert main(["observe", *words]) == 0
    return {broker["broker"]: broker for broker in json.loads(capsys.readouterr().out)["brokers"]}


def create_policy(env: PolicyEnvironment, url: str, **source: str) -> None:
    selected = {"podLabels": {key: LABELS[key] for key in ("app", "component")}}
    env.create_policy(brokers=selected, source={"prometheus": {"url": url, **source}})


def test_the_pods_of_the_chart_are_measured_by_a_policy_without_a_container(
    env: PolicyEnvironment, fake: FakePrometheus, capsys: Captured
) -> None:
    put_pods(env, resources={"limits": {"cpu": "2", "memory": "4Gi"}})
    create_policy(env, fake.url)
    found = observed(env, capsys)
    assert [round(found[name]["usage"]["cpu"]) for name in CORES] == [75, 15]
    assert {text for broker in found.values() for text in broker["limits"].values()} == {"the container's limit"}
    assert not [broker["doubt"] for broker in found.values() if broker["doubt"]]


def test_requests_alone_are_no_capacity_and_the_node_counts(
    env: PolicyEnvironment, fake: FakePrometheus, capsys: Captured
) -> None:
    for pod in CORES:
        where = {"namespace": env.namespace, "pod": pod, "container": "pulsar-broker"}
        fake.put("kube_pod_info", 8, namespace=env.namespace, pod=pod, node="n")  # times what its node can allocate
        fake.put("kube_pod_container_resource_limits", 0.2, **where, resource="cpu")  # another cluster's pod
        fake.put("kube_pod_container_resource_requests", 0.2, **where, resource="cpu")
    put_pods(env)
    create_policy(env, fake.url)
    found = observed(env, capsys)
    assert [round(found[name]["usage"]["cpu"], 1) for name in CORES] == [18.8, 3.8]
    assert found[BUSY]["limits"]["cpu"] == "what the node can allocate, because the pod has no limit"


def test_plan_says_first_that_no_pod_has_the_container_that_the_policy_names(
    env: PolicyEnvironment, fake: FakePrometheus, capsys: Captured
) -> None:
    put_pods(env)
    create_policy(env, fake.url, container="broker")
    assert main(["plan", "main", "-n", env.namespace, "--kubeconfig", env.kubeconfig]) == 0
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first == (
        f"not measured: {BUSY}: its pod {BUSY} has no container broker, but pulsar-broker; "
        "correct spec.source.prometheus.container, or leave it out"
    )
    assert second.startswith(f"not measured: {IDLE}: its pod {IDLE} has no container broker")


def test_plan_says_first_which_brokers_have_no_pod(
    env: PolicyEnvironment, fake: FakePrometheus, capsys: Captured
) -> None:
    put_pods(env, resources={"limits": {"cpu": "2", "memory": "4Gi"}})
    spec = {"address": "10.9.9.9:8080"}
    manifest = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "Broker", "metadata": {"name": "far"}, "spec": spec}
    env.rest.create(env.path("brokers"), manifest)
    env.create_policy(source={"prometheus": {"url": fake.url}})
    assert main(["plan", "main", "-n", env.namespace, "--kubeconfig", env.kubeconfig]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("not measured: far: no pod is at its address 10.9.9.9:8080, so its metrics can't be found")
    assert "spec.pod" in first
