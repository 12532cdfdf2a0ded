"""Simulated brokers against the real API server and Prometheus: they confirm, fail on demand, and never share a
bundle.
"""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from manifests import broker
from small_cluster import until
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.prometheus import PrometheusServer
from trimtab_testbed.simulated.broker import ServingListener
from trimtab_testbed.simulated.cluster import SimulatedCluster, landed, object_name
from trimtab_testbed.simulated.scenarios import scenario

pytestmark = pytest.mark.apiserver

FIRST, SECOND, THIRD = "pulsar-broker-0", "pulsar-broker-1", "pulsar-broker-2"


def opened(control_plane: ControlPlane, namespace: str, on_serving: ServingListener | None = None) -> SimulatedCluster:
    kubeconfig = control_plane.kubeconfig
    return SimulatedCluster(
        scenario("uneven-8"), rest=control_plane.rest, kubeconfig=kubeconfig, namespace=namespace, on_serving=on_serving
    )


def add_brokers(control_plane: ControlPlane, namespace: str, *names: str) -> None:
    """Create a Broker object for each pod, as the operator's discovery does."""
    for name in names:
        control_plane.rest.create(f"/apis/trimtab.dev/v1alpha1/namespaces/{namespace}/brokers", broker(name))


@pytest.fixture
def world(trimtab_crds: ControlPlane, kube_namespace: str) -> Iterator[SimulatedCluster]:
    """Three brokers that own the eight bundles of `uneven-8`."""
    add_brokers(trimtab_crds, kube_namespace, FIRST, SECOND, THIRD)
    with opened(trimtab_crds, kube_namespace) as running:
        running.seed_bundles()
        running.wait_until_owned()
        yield running


@pytest.fixture
def set_owner(trimtab_crds: ControlPlane, world: SimulatedCluster) -> Callable[[str, str], None]:
    """Patches the owner of a Bundle object, as a person would."""

    def patch(bundle: str, owner: str) -> None:
        path = f"/apis/trimtab.dev/v1alpha1/namespaces/{world.namespace}/bundles/{bundle}"
        trimtab_crds.rest.patch(path, {"spec": {"owner": owner}})

    return patch


def a_bundle_of(world: SimulatedCluster, broker: str) -> str:
    return next(name for name, bundle in world.bundles().items() if bundle["status"]["owner"] == broker)


def owners(world: SimulatedCluster) -> dict[str, str]:
    return {name: bundle["status"]["owner"] for name, bundle in world.bundles().items()}


def served(world: SimulatedCluster) -> dict[str, str]:
    return {object_name(bundle): broker for broker, bundles in world.serving().items() for bundle in bundles}


def test_brokers_take_the_bundles_desired_on_them_and_serve_them(world: SimulatedCluster) -> None:
    # confirmed first, then served
    until("what is confirmed is served", lambda: served(world) == owners(world), within=10)
    assert {bundle["status"]["state"] for bundle in world.bundles().values()} == {"Owned"}


def test_broker_pods_are_ready_and_labelled(trimtab_crds: ControlPlane, world: SimulatedCluster) -> None:
    pods = trimtab_crds.rest.get(f"/api/v1/namespaces/{world.namespace}/pods?labelSelector=app%3Dpulsar")["items"]
    ready = {pod["metadata"]["name"]: pod["status"]["conditions"][0]["status"] for pod in pods}
    assert ready == dict.fromkeys((FIRST, SECOND, THIRD), "True")


def test_a_desired_owner_moves_a_bundle_and_is_confirmed(
    world: SimulatedCluster, set_owner: Callable[[str, str], None]
) -> None:
    bundle = a_bundle_of(world, FIRST)
    set_owner(bundle, THIRD)
    until("the move landed", lambda: landed(world.bundles()[bundle]), within=10)
    assert owners(world)[bundle] == THIRD
    until("the new owner serves it", lambda: served(world).get(bundle) == THIRD, within=10)


def test_no_bundle_is_served_twice_while_many_move(
    world: SimulatedCluster, set_owner: Callable[[str, str], None]
) -> None:
    for run in range(3):
        for number, bundle in enumerate(world.bundles()):
            set_owner(bundle, (FIRST, SECOND, THIRD)[(run + number) % 3])
            serving = [name for bundles in world.serving().values() for name in bundles]
            assert len(serving) == len(set(serving))
    world.wait_until_owned()
    until("what is confirmed is served", lambda: served(world) == owners(world), within=10)


def test_every_beginning_and_end_of_serving_is_reported(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    serving: dict[str, set[str]] = {FIRST: set(), SECOND: set(), THIRD: set()}

    def told(broker: str, bundle: str, serves: bool) -> None:  # noqa: FBT001  the interface of `ServingListener`
        assert (bundle in serving[broker]) is not serves
        (serving[broker].add if serves else serving[broker].discard)(bundle)

    with opened(trimtab_crds, kube_namespace, told) as world:
        world.seed_bundles()
        world.wait_until_owned()
        until("all were told", lambda: serving == world.serving(), within=10)
        assert sum(map(len, serving.values())) == 8

        world.kill(FIRST)
        assert not serving[FIRST]

        world.revive(FIRST)
        world.revive(FIRST)
        until("those it owns are told again", lambda: bool(serving[FIRST]) and serving == world.serving(), within=10)


def test_a_bundle_with_a_typo_in_its_owner_is_served_until_there_is_such_a_broker(
    trimtab_crds: ControlPlane, kube_namespace: str
) -> None:
    changes: list[tuple[str, str, bool]] = []
    with opened(trimtab_crds, kube_namespace, lambda *change: changes.append(change)) as world:
        world.seed_bundles()
        world.wait_until_owned()
        until("what is confirmed is served", lambda: served(world) == owners(world), within=10)
        changes.clear()
        typo, real, *_ = (name for name, owner in sorted(owners(world).items()) if owner == FIRST)
        bundles = f"/apis/trimtab.dev/v1alpha1/namespaces/{kube_namespace}/bundles"
        trimtab_crds.rest.patch(f"{bundles}/{typo}", {"spec": {"owner": "pulsar-broker-l"}})
        trimtab_crds.rest.patch(f"{bundles}/{real}", {"spec": {"owner": SECOND}})

        add_brokers(trimtab_crds, kube_namespace, SECOND)

        until("the other, which waited as long, moves", lambda: owners(world)[real] == SECOND, within=10)
        assert (owners(world)[typo], served(world)[typo]) == (FIRST, FIRST)
        assert {object_name(bundle) for _, bundle, _ in changes} == {real}


def test_a_killed_broker_takes_nothing_until_it_is_revived(
    world: SimulatedCluster, set_owner: Callable[[str, str], None]
) -> None:
    world.kill(THIRD)
    bundle = a_bundle_of(world, FIRST)
    set_owner(bundle, THIRD)
    until("the source released it", lambda: not owners(world)[bundle], within=10)
    world.revive(THIRD)
    world.wait_until_owned()
    assert owners(world)[bundle] == THIRD


def test_the_pod_of_a_killed_broker_is_not_ready_or_gone(trimtab_crds: ControlPlane, world: SimulatedCluster) -> None:
    path = f"/api/v1/namespaces/{world.namespace}/pods"
    world.kill(FIRST)
    assert trimtab_crds.rest.get(f"{path}/{FIRST}")["status"]["conditions"][0]["status"] == "False"
    world.kill(SECOND, delete_pod=True)
    assert {pod["metadata"]["name"] for pod in trimtab_crds.rest.get(path)["items"]} == {FIRST, THIRD}
    world.revive(SECOND)
    assert trimtab_crds.rest.get(f"{path}/{SECOND}")["status"]["conditions"][0]["status"] == "True"


def test_a_deaf_broker_keeps_what_it_should_release(
    world: SimulatedCluster, set_owner: Callable[[str, str], None]
) -> None:
    bundle = a_bundle_of(world, FIRST)
    world.deafen(FIRST)
    set_owner(bundle, SECOND)
    time.sleep(0.5)
    assert owners(world)[bundle] == FIRST
    world.undeafen(FIRST)
    world.wait_until_owned()
    assert owners(world)[bundle] == SECOND


def test_muted_metrics_are_refused_also_on_a_kept_connection(world: SimulatedCluster) -> None:
    (address,) = [target.address for target in world.targets if target.labels["pod"] == FIRST]
    url = f"http://{address}/metrics"
    with urllib.request.urlopen(url, timeout=5) as page:
        assert b"pulsar_lb_cpu_usage" in page.read()
    world.mute_metrics(FIRST)
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)
    world.unmute_metrics(FIRST)
    with urllib.request.urlopen(url, timeout=5) as page:
        assert page.status == 200


def test_brokers_follow_desired_owners_again_after_the_api_server_was_away(own_control_plane: ControlPlane) -> None:
    rest = own_control_plane.rest
    rest.create_namespace("messaging")
    add_brokers(own_control_plane, "messaging", FIRST, SECOND, THIRD)
    with opened(own_control_plane, "messaging") as world:
        world.seed_bundles()
        world.wait_until_owned()
        until("what is confirmed is served", lambda: served(world) == owners(world), within=10)
        before = served(world)
        own_control_plane.restart_apiserver(down=0.5)
        assert served(world) == before
        bundle = a_bundle_of(world, FIRST)
        rest.patch(f"/apis/trimtab.dev/v1alpha1/namespaces/messaging/bundles/{bundle}", {"spec": {"owner": SECOND}})
        world.wait_until_owned()
        assert owners(world)[bundle] == SECOND


def _cpu(prometheus: PrometheusServer, namespace: str) -> dict[str, float]:
    limit = 'kube_pod_container_resource_limits{resource="cpu"}'
    usage = f'rate(container_cpu_usage_seconds_total{{container="broker",namespace="{namespace}"}}[4s])'
    promql = f"100 * max by (pod) ({usage}) / max by (pod) ({limit})"
    url = f"{prometheus.url}/api/v1/query?" + urllib.parse.urlencode({"query": promql})
    with urllib.request.urlopen(url, timeout=5) as response:
        result: list[dict[str, Any]] = json.load(response)["data"]["result"]
    return {sample["metric"]["pod"]: float(sample["value"][1]) for sample in result}


@pytest.mark.prometheus
def test_prometheus_measures_what_brokers_really_use(
    world: SimulatedCluster, prometheus_binary: Path, tmp_path: Path
) -> None:
    with PrometheusServer(prometheus_binary, tmp_path, world.targets, scrape_interval=0.5) as prometheus:
        until("all brokers are measured", lambda: len(_cpu(prometheus, world.namespace)) == 3, within=20)
        time.sleep(3)
        measured, truth = _cpu(prometheus, world.namespace), world.cpu()
    assert measured == pytest.approx(truth, rel=0.1)
    assert truth == pytest.approx({FIRST: 60, SECOND: 20, THIRD: 10}, abs=3)
