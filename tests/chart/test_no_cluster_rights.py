"""A release of a person with rights in one namespace alone, who may not create Roles."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from chart import CHART, NAMESPACE, RELEASE, Runner, combinations, one
from helm_release import HelmRelease
from helm_tools import Helm
from pulsar_settings import defaults, settings_brokers
from restored_namespace import FINALIZER, AbandonedNamespace
from trimtab_operator.resources.crd import rendered_crds
from trimtab_operator.resources.rbac import manifests
from trimtab_testbed.servers.kube import ControlPlane

CONFINED = [
    ("", ["secrets", "services", "configmaps", "persistentvolumeclaims"]),
    ("apps", ["deployments"]),
    ("batch", ["jobs"]),
    ("policy", ["poddisruptionbudgets"]),
]
"""What the chart creates with these values."""


@pytest.mark.apiserver
@pytest.mark.timeout(600)
def test_it_is_installed_and_removed(release_plane: ControlPlane, helm_program: Helm, tmp_path: Path) -> None:
    plane = release_plane
    administer(plane)
    helm = Runner(helm_program, tmp_path / "helm", plane.user_kubeconfig("confined"))
    values = tmp_path / "values.yaml"
    release = HelmRelease(plane, helm, tmp_path / "stage", NAMESPACE)
    values.write_text(yaml.safe_dump({**release.values, **combinations()["no-cluster-rights"], **release.values}))
    words = (RELEASE, CHART, "--namespace", NAMESPACE, "--values", values)
    helm.run("install", *words)
    with settings_brokers(defaults()) as brokers:
        abandoned = AbandonedNamespace(plane, NAMESPACE, brokers)
        release.with_jobs("uninstall", RELEASE, "--namespace", NAMESPACE)
    assert abandoned.mode() == "DryRun"
    assert all(FINALIZER not in names for names in abandoned.finalizers())
    assert plane.rest.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")["items"] == []
    assert "Deployment trimtab: scaled to zero" in release.jobs.outputs[0]


def administer(plane: ControlPlane) -> None:
    """What an administrator does first: kinds, ServiceAccount and Role of the operator, rights of the person."""
    rest = plane.rest
    rest.apply_crds([yaml.safe_load(text) for text in rendered_crds().values()])
    rest.create_namespace(NAMESPACE)
    account, role, binding = manifests(stop=RELEASE)
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    rest.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
    rest.create(f"{roles}/roles", role)
    rest.create(f"{roles}/rolebindings", binding)
    rules = [{"apiGroups": [group], "resources": kinds, "verbs": ["*"]} for group, kinds in CONFINED]
    rest.create(f"{roles}/roles", {**role, "metadata": {"name": "confined"}, "rules": rules})
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "confined"}
    reference = {**binding["roleRef"], "name": "confined"}
    rest.create(
        f"{roles}/rolebindings",
        {**binding, "metadata": {"name": "confined"}, "roleRef": reference, "subjects": [user]},
    )


def test_its_hook_needs_no_role(offline: Runner) -> None:
    rendered = offline.rendered(combinations()["no-cluster-rights"])
    assert {manifest["kind"] for manifest in rendered}.isdisjoint({"Role", "RoleBinding", "ServiceAccount"})
    hook = one(rendered, "Job", "trimtab-restore")
    assert hook["spec"]["template"]["spec"]["serviceAccountName"] == "trimtab"
