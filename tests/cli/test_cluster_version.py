"""`trimtab version` and `--request-timeout` against real servers: what they say, and how long they wait."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from trimtab_operator import __version__
from trimtab_operator.cli import main
from trimtab_operator.cli.cluster import said
from trimtab_operator.kube.errors import NotFoundError
from trimtab_testbed.servers.kube import ControlPlane

Captured = pytest.CaptureFixture[str]


def versions(plane: ControlPlane, namespace: str, capsys: Captured, *words: str) -> Any:
    command = ["version", "-n", namespace, "--kubeconfig", str(plane.kubeconfig), "-o", "json", *words]
    assert main(command) == 0
    return json.loads(capsys.readouterr().out)


def lead(plane: ControlPlane, namespace: str, holder: str) -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "trimtab"}, "spec": spec}
    plane.rest.create(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", body)


@pytest.mark.apiserver
def test_it_tells_what_the_cluster_serves(trimtab_crds: ControlPlane, kube_namespace: str, capsys: Captured) -> None:
    found = versions(trimtab_crds, kube_namespace, capsys)

    assert found["client"]["version"] == __version__
    assert found["cluster"]["version"].startswith("v1.")
    assert found["kinds"] == {"served": ["v1alpha1"], "wanted": "v1alpha1"}
    assert found["operator"] == {"leader": ""}, "there is no Lease"


@pytest.mark.apiserver
def test_it_tells_the_version_of_the_operator_that_leads(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: Captured
) -> None:
    labels = {"app.kubernetes.io/version": "0.9.0"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trimtab-7f-x2", "labels": labels},
        "spec": {"containers": [{"name": "operator", "image": "trimtab:0.9.0"}], "automountServiceAccountToken": False},
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    accounts = f"/api/v1/namespaces/{kube_namespace}/serviceaccounts"
    if not trimtab_crds.rest.get(accounts)["items"]:
        trimtab_crds.rest.create(accounts, account)
    trimtab_crds.rest.create(f"/api/v1/namespaces/{kube_namespace}/pods", pod)
    lead(trimtab_crds, kube_namespace, "trimtab-7f-x2_0a1b2c3d")

    found = versions(trimtab_crds, kube_namespace, capsys)

    assert found["operator"] == {"leader": "trimtab-7f-x2", "version": "0.9.0"}


@pytest.mark.apiserver
def test_what_can_not_be_read_is_told_and_the_rest_is_shown(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: Captured
) -> None:
    lead(trimtab_crds, kube_namespace, "laptop_0a1b2c3d")
    found = versions(trimtab_crds, kube_namespace, capsys)
    assert found["operator"]["leader"] == "laptop"
    assert "not found" in found["operator"]["error"]

    found = versions(trimtab_crds, kube_namespace, capsys, "--as", "jane", "--as-group", "system:authenticated")
    assert found["kinds"]["served"] == ["v1alpha1"], "every user may read what is served"
    assert 'User "jane" cannot get resource "leases"' in found["operator"]["error"]


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_given_up_in_time(tmp_path: Path, capsys: Captured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = tmp_path / "config"
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        file.write_text(
            "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],"
            f" clusters: [{{name: c, cluster: {{server: '{server}'}}}}], users: [{{name: u, user: {{}}}}]}}"
        )
        begun = time.monotonic()
        assert main(["status", "--kubeconfig", str(file), "--request-timeout", "1s"]) == 2
        assert main(["version", "--kubeconfig", str(file), "--request-timeout", "1s"]) == 0
        assert time.monotonic() - begun < 10, "without the flag one request alone may take 30 s"
    shown = capsys.readouterr()
    assert "the API server does not answer" in shown.err
    assert "cluster:    not asked: the API server does not answer" in shown.out
    assert main(["status", "--kubeconfig", str(file), "--request-timeout", "1s"]) == 2
    address = server.removeprefix("http://")
    why = f"the API server does not answer: {address}: Connection refused; is it the right cluster?"
    assert why in capsys.readouterr().err


def test_a_cluster_without_the_kinds_is_told_with_the_command_that_installs_them() -> None:
    unknown = NotFoundError("list https://10.0.0.1/apis/trimtab.dev/v1alpha1/bundles: 404 page not found", status=404)
    assert said(unknown).startswith("this cluster has no kinds of trimtab.dev; first: trimtab crds | kubectl apply")
    gone = NotFoundError('bundles.trimtab.dev "a" not found', status=404, reason="NotFound")
    assert said(gone) == str(gone)
