"""The demo for kind: a real API server takes its objects, its broker serves bundles, its script says what it lacks."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from small_cluster import until
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.processes import HOST, Server, free_ports
from trimtab_testbed.simulated.scenarios import scenario

ROOT = Path(__file__).parents[2]
KIND = ROOT / "examples" / "kind"
MANIFESTS = ("brokers.yaml", "prometheus.yaml", "policy.yaml")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((KIND / name).read_text()))


@pytest.mark.apiserver
@pytest.mark.parametrize("name", MANIFESTS)
def test_a_real_api_server_takes_it(trimtab_crds: ControlPlane, kube_namespace: str, name: str) -> None:
    """Unknown fields are refused."""
    apply = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-n", kube_namespace, "-f", "-")
    said = trimtab_crds.kubectl(*apply, stdin=(KIND / name).read_text())
    assert said.count("serverside-applied") == len(documents(name))


@pytest.mark.apiserver
def test_its_pods_are_admitted_where_only_restricted_ones_are(control_plane: ControlPlane, kube_namespace: str) -> None:
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    control_plane.rest.patch(f"/api/v1/namespaces/{kube_namespace}", labels)
    for name in MANIFESTS:
        for one in documents(name):
            if template := one["spec"].get("template") if "spec" in one else None:
                meta = {**template["metadata"], "name": one["metadata"]["name"]}
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
                dry = ("create", "--dry-run=server", "-n", kube_namespace, "-f", "-")
                assert "created" in control_plane.kubectl(*dry, stdin=yaml.safe_dump(pod))


def test_the_script_applies_every_manifest_and_stops_at_errors() -> None:
    text = (KIND / "demo.sh").read_text()
    assert "set -euo pipefail" in text
    assert all(f"$here/{name}" in text for name in (*MANIFESTS, "values.yaml", "broker.py"))
    assert "kind create cluster --config kind-config.yaml" in text, "the script runs at the top of the repository"
    assert os.access(KIND / "demo.sh", os.X_OK)
    done = subprocess.run(["bash", "-n", str(KIND / "demo.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_script_names_what_is_missing_before_it_makes_anything(tmp_path: Path) -> None:
    for tool in ("bash", "dirname"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    done = subprocess.run(
        [str(KIND / "demo.sh")], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (2, "demo: docker is missing\n", "")


def test_brokers_and_bundles_are_those_of_the_scenario() -> None:
    story = scenario("mixed-48")
    [brokers] = [one for one in documents("brokers.yaml") if one["kind"] == "StatefulSet"]
    spaces = [one["spec"] for one in documents("brokers.yaml") if one["kind"] == "TopicNamespace"]
    limits = brokers["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    names = [f"{brokers['metadata']['name']}-{number}" for number in range(brokers["spec"]["replicas"])]
    assert names == [broker.shape.name for broker in story.brokers]
    assert {float(limits["cpu"])} == {broker.shape.cores for broker in story.brokers}
    assert spaces == [{"tenant": s.tenant, "name": s.name, "bundles": s.bundles} for s in story.namespaces]


def test_the_stronger_node_is_one_of_the_cluster() -> None:
    cluster = yaml.safe_load((ROOT / "kind-config.yaml").read_text())
    workers = [node for node in cluster["nodes"] if node["role"] == "worker"]
    assert [node["labels"]["trimtab.dev/strength"] for node in workers] == ["1", "1", "2"]
    assert f"{cluster['name']}-worker3=2" in (KIND / "brokers.yaml").read_text()  # kind counts workers from the second
    assert ["kubeadmConfigPatches" in node for node in workers] == [True, True, False]


@pytest.mark.apiserver
def test_a_broker_takes_its_bundles_with_the_rights_it_has(
    trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path
) -> None:
    plane, api = trimtab_crds, f"/apis/trimtab.dev/v1alpha1/namespaces/{kube_namespace}"
    rights = [one for one in documents("brokers.yaml") if one["kind"] in {"ServiceAccount", "Role", "RoleBinding"}]
    plane.kubectl("apply", "-n", kube_namespace, "-f", "-", stdin=yaml.safe_dump_all(rights))
    account = f"/api/v1/namespaces/{kube_namespace}/serviceaccounts/pulsar-broker/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = plane.rest.create(account, request)["status"]["token"]
    [space] = [one for one in documents("brokers.yaml") if one["metadata"]["name"] == "shop-orders"]
    made = plane.rest.create(f"{api}/topicnamespaces", space)
    plane.rest.create(f"{api}/bundles", bundle(made))
    (port,) = free_ports(1)
    env = {
        "KUBECONFIG": str(plane.write_kubeconfig(f"{kube_namespace}-broker", {"token": token})),
        "POD_NAME": "pulsar-broker-3",
        "NAMESPACE": kube_namespace,
        "NODE_NAME": "n",
        "STRENGTHS": "n=2",
        "LISTEN": HOST,
        "PORT": str(port),
    }
    broker = Server([sys.executable, KIND / "broker.py"], log=tmp_path / "broker.log", env={**os.environ, **env})
    broker.start()
    try:
        broker.wait_ready(f"http://{HOST}:{port}/metrics")
        until("the bundle is taken", lambda: plane.rest.get(f"{api}/bundles/{BUNDLE}").get("status", {}).get("owner"))
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics") as answer:
            assert 'pod="pulsar-broker-3"' in answer.read().decode()
    finally:
        broker.stop()
    assert "strength 2" in broker.log_tail()


BUNDLE = "shop-orders-0x00000000-0x08000000"


def bundle(space: dict[str, Any]) -> dict[str, Any]:
    """The first bundle of a TopicNamespace, with a desired owner."""
    from trimtab_operator.reconcile.namespaces import first_bundles  # noqa: PLC0415
    from trimtab_operator.resources.topic_namespace import TopicNamespaceSpec  # noqa: PLC0415

    spec = TopicNamespaceSpec(**space["spec"])
    found = next(
        b for b in first_bundles("shop-orders", space["metadata"]["uid"], spec) if b["metadata"]["name"] == BUNDLE
    )
    return {**found, "spec": {**found["spec"], "owner": "pulsar-broker-3"}}
