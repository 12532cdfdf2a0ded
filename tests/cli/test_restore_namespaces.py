"""`trimtab restore` after an operator for several namespaces."""

from __future__ import annotations

import pytest

from pulsar_settings import defaults, settings_brokers
from restored_namespace import FINALIZER, HERE, AbandonedNamespace
from small_cluster import until
from trimtab_operator.cli import main
from trimtab_operator.pulsar.client.dynamic_config import SPLITTING
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("scope", ["named", "all"])
def test_each_cluster_is_restored_and_the_operator_is_stopped_once(
    own_control_plane: ControlPlane, scope: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plane = own_control_plane
    for name in ("a", "b", "operator", "empty"):
        plane.rest.create_namespace(name)
    with settings_brokers(defaults(), defaults()) as first, settings_brokers(defaults(), defaults()) as second:
        clusters = [AbandonedNamespace(plane, "a", first), AbandonedNamespace(plane, "b", second)]
        where = ["-A"] if scope == "all" else ["-n", "a", "-n", "b"]
        words = ["restore", *where, "--kubeconfig", str(plane.kubeconfig), *HERE]
        assert main([*words, "--stop-deployment", "trimtab"]) == 2
        assert "needs --operator-namespace" in capsys.readouterr().err

        assert main([*words, "--stop-deployment", "trimtab", "--operator-namespace", "operator"]) == 0
        assert first.dynamic == second.dynamic == {SPLITTING: "TRUE"}
    for cluster in clusters:
        assert cluster.mode() == "DryRun"
        assert all(FINALIZER not in left for left in cluster.finalizers())
    assert capsys.readouterr().out.count("Deployment trimtab: not found") == 1


def test_one_pulsar_by_its_url_is_of_one_namespace(
    control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["restore", "-n", "a", "-n", "b", "--kubeconfig", str(control_plane.kubeconfig)]
    assert main([*words, "--admin-url", "http://127.0.0.1:8080"]) == 2
    assert "restore one namespace at a time" in capsys.readouterr().err


def test_a_namespace_whose_policies_are_deleted_is_found_by_the_stored_settings(
    own_control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    plane = own_control_plane
    words = ["restore", "-A", "--kubeconfig", str(plane.kubeconfig), *HERE]
    assert main(words) == 0
    assert capsys.readouterr().out == (
        "nothing to restore was found in any namespace; -n NAMESPACE checks one namespace\n"
    )
    plane.rest.create_namespace("left")
    with settings_brokers(defaults()) as brokers:
        cluster = AbandonedNamespace(plane, "left", brokers)
        for path in (cluster.path("balancingpolicies", "main"), cluster.path("topicnamespaces", "public-default")):
            plane.rest.patch(path, {"metadata": {"finalizers": []}})
            plane.rest.delete(path)
        assert main([*words, "--as", "guest", "--as-group", "readers"]) == 2, "it may list nothing"

        allow(plane, "guest", ["balancingpolicies", "topicnamespaces"])
        until("the role holds", lambda: main([*words, "--as", "guest"]) == 0)
        said = capsys.readouterr().out
        assert "are left out, as ConfigMaps can't be listed: " in said
        assert "nothing to restore was found" in said
        assert cluster.kept()

        assert main(words) == 0
        assert brokers.dynamic == {SPLITTING: "TRUE"}
    assert not cluster.kept()


def allow(plane: ControlPlane, user: str, plurals: list[str]) -> None:
    """Let `user` list these kinds of Trimtab in all namespaces."""
    root, version = "/apis/rbac.authorization.k8s.io/v1", {"apiVersion": "rbac.authorization.k8s.io/v1"}
    meta = {"metadata": {"name": user}}
    rules = [{"apiGroups": ["trimtab.dev"], "resources": plurals, "verbs": ["list"]}]
    plane.rest.create(f"{root}/clusterroles", {**version, "kind": "ClusterRole", **meta, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    binding = {**version, "kind": "ClusterRoleBinding", **meta, "roleRef": role, "subjects": subjects}
    plane.rest.create(f"{root}/clusterrolebindings", binding)
