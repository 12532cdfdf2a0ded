"""One release for several messaging clusters: balanced apart, with rights in their namespaces and nowhere else."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chart import RELEASE, Runner, names, one, operator_container
from scoped_release import OPERATOR, ScopedRelease, collection
from small_cluster import until
from trimtab_testbed.servers.kube import ControlPlane

CLUSTERS = ("orders", "payments")
STRANGER = "billing"
ROLES = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def release(
    release_plane: ControlPlane, online: Runner, prometheus_binary: Path, tmp_path: Path
) -> Iterator[ScopedRelease]:
    """Two messaging clusters, and a third that is no one's business."""
    with ScopedRelease(release_plane, online, prometheus_binary, tmp_path / "stage", (*CLUSTERS, STRANGER)) as stage:
        yield stage


def metrics(release: ScopedRelease, name: str) -> set[str]:
    """The namespaces of the samples of a metric."""
    with urllib.request.urlopen(f"{release.url}/metrics", timeout=5) as answer:
        page = answer.read().decode()
    lines = re.findall(rf"^{name}(\{{.*\}}) ", page, re.MULTILINE)
    return {namespace for labels in lines for namespace in re.findall(r'namespace="([^"]*)"', labels)}


def granted(release: ScopedRelease) -> set[str]:
    """Namespaces with a Role of the release (empty: a ClusterRole), without those for people."""
    roles = release.rest.get(f"{ROLES}/roles")["items"] + release.rest.get(f"{ROLES}/clusterroles")["items"]
    ours = [r["metadata"] for r in roles if r["metadata"].get("labels", {}).get("app.kubernetes.io/name") == "trimtab"]
    return {meta.get("namespace", "") for meta in ours if not meta["name"].endswith(("-view", "-edit", "-approve"))}


@pytest.mark.apiserver
@pytest.mark.prometheus
@pytest.mark.timeout(1200)
def test_two_clusters_are_balanced_with_rights_in_their_namespaces_alone(release: ScopedRelease) -> None:
    release.install(watchNamespaces=list(CLUSTERS))
    release.start_brokers()
    for namespace in (*CLUSTERS, STRANGER):
        release.apply_policy(namespace)
    release.start_operator()
    for namespace in CLUSTERS:
        until(f"{namespace} is level", lambda at=namespace: release.level(at), within=280)
    assert not release.level(STRANGER)
    assert "status" not in release.rest.get(collection(STRANGER, "balancingpolicies/policy"))

    assert granted(release) == {*CLUSTERS, OPERATOR}
    for name in ("trimtab_policy_state", "trimtab_moves_total", "trimtab_leader", "trimtab_store_objects"):
        assert metrics(release, name) == set(CLUSTERS)
    asked = release.requests()
    assert [request for request in asked if request[3] == 403] == []
    assert {namespace for namespace, *_ in asked} == {*CLUSTERS, OPERATOR}
    assert {resource for namespace, resource, *_ in asked if namespace == OPERATOR} == {"leases", "events"}

    release.upgrade(watchNamespaces=list(CLUSTERS), log={"level": "debug"})
    release.helm.run("rollback", RELEASE, "1", "--namespace", OPERATOR)
    assert granted(release) == {*CLUSTERS, OPERATOR}
    release.uninstall()
    assert release.jobs.codes == [0], release.jobs.outputs
    for namespace in CLUSTERS:
        meta = release.rest.get(collection(namespace, "balancingpolicies/policy"))["metadata"]
        assert not meta.get("finalizers")
    assert granted(release) == set()
    assert [request for request in release.requests() if request[3] == 403] == []


@pytest.mark.apiserver
@pytest.mark.prometheus
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_namespace_is_managed_from_its_first_policy_on(release: ScopedRelease) -> None:
    release.install(watchAllNamespaces=True)
    release.start_brokers()
    release.apply_policy("orders")
    release.start_operator()
    until("orders is level", lambda: release.level("orders"), within=280)
    release.apply_policy("payments")
    until("payments is level", lambda: release.level("payments"), within=280)

    assert granted(release) == {"", OPERATOR}
    assert metrics(release, "trimtab_policy_state") == set(CLUSTERS)
    asked = release.requests()
    assert [request for request in asked if request[3] == 403] == []
    assert STRANGER not in {namespace for namespace, *_ in asked}, "it has no policy"
    cluster_wide = {resource for namespace, resource, *_ in asked if not namespace}
    assert cluster_wide == {"balancingpolicies"}, "all else is asked by namespace"

    release.uninstall()
    assert release.jobs.codes == [0], release.jobs.outputs
    for namespace in CLUSTERS:
        meta = release.rest.get(collection(namespace, "balancingpolicies/policy"))["metadata"]
        assert not meta.get("finalizers")
    assert granted(release) == set()


def test_all_namespaces_take_cluster_roles_for_the_operator_and_the_restore(offline: Runner) -> None:
    manifests = offline.rendered({"watchAllNamespaces": True})
    wide = {name for name in names(manifests, "ClusterRole") if not name.endswith(("-view", "-edit", "-approve"))}
    assert wide == {"trimtab-messaging", "trimtab-messaging-restore"}
    assert set(names(manifests, "ClusterRoleBinding")) == wide
    assert set(names(manifests, "Role")) == {"trimtab", "trimtab-restore"}
    assert "--all-namespaces" in operator_container(manifests)["args"]


def test_a_role_is_rendered_for_each_namespace_and_a_small_one_for_the_lease(offline: Runner) -> None:
    alone, several = offline.rendered(), offline.rendered({"watchNamespaces": ["a", "b"]})
    (full,) = (one(alone, "Role", "trimtab")["rules"],)
    (first, second) = (m for m in several if m["kind"] == "Role" and m["metadata"]["name"] == "trimtab-messaging")
    assert [first["metadata"]["namespace"], second["metadata"]["namespace"]] == ["a", "b"]
    assert first["rules"] == second["rules"] == [rule for rule in full if "leases" not in rule["resources"]]
    own = one(several, "Role", "trimtab")
    assert own["metadata"]["namespace"] == "messaging"
    assert {resource for rule in own["rules"] for resource in rule["resources"]} == {"leases", "events"}
    for manifest in several:
        if manifest["kind"] == "RoleBinding":
            (subject,) = manifest["subjects"]
            assert subject["namespace"] == "messaging"


def test_approvals_are_restricted_where_the_operator_works(offline: Runner) -> None:
    def namespaces(**values: Any) -> Any:
        binding = one(offline.rendered(values), "ValidatingAdmissionPolicyBinding")["spec"]
        if "matchResources" not in binding:
            return "all"
        (wanted,) = binding["matchResources"]["namespaceSelector"]["matchExpressions"]
        return wanted["values"]

    assert namespaces() == ["messaging"]
    assert namespaces(watchNamespaces=["a", "b"]) == ["a", "b"]
    assert namespaces(watchAllNamespaces=True) == "all"
