"""A real API server takes what the chart renders, unknown fields refused, for each documented way of installing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from chart import CHART, IMAGE, NAMESPACE, Runner, combinations, documents
from trimtab_operator.kube.naming import BUDGET
from trimtab_testbed.servers.kube import ControlPlane, KubectlError

pytestmark = pytest.mark.apiserver

_DRY = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")


def _taken(plane: ControlPlane, manifests: str) -> int:
    """How many objects the server would have applied. Raises `KubectlError`."""
    said = plane.kubectl(*_DRY, stdin=manifests)
    return sum(line.endswith("serverside-applied (server dry run)") for line in said.splitlines())


@pytest.mark.parametrize("name", combinations())
def test_the_server_takes_it(offline: Runner, furnished: ControlPlane, name: str) -> None:
    text = offline.template(combinations()[name])
    assert _taken(furnished, text) == len(documents(text)) >= 4


def test_the_server_would_refuse_a_slip_of_the_pen(offline: Runner, furnished: ControlPlane) -> None:
    text = offline.template({"crds": {"enabled": False}})
    with pytest.raises(KubectlError, match="replicaz"):
        _taken(furnished, text.replace("  replicas: 2", "  replicaz: 2"))


def test_the_pods_are_admitted_where_only_restricted_ones_are(offline: Runner, furnished: ControlPlane) -> None:
    """By Pod Security admission, of what the Deployment and the Job would start."""
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    furnished.rest.patch(f"/api/v1/namespaces/{NAMESPACE}", labels)
    values = {"crds": {"enabled": False}, "spark": {"mode": "sidecar"}}
    for manifest in documents(offline.template(values)):
        if manifest["kind"] in ("Deployment", "Job"):
            template = manifest["spec"]["template"]
            meta = {**template["metadata"], "name": manifest["kind"].lower(), "namespace": NAMESPACE}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
            assert _taken(furnished, yaml.safe_dump(pod)) == 1


def test_notes_say_what_to_do_next(offline: Runner, furnished: ControlPlane) -> None:
    online = replace(offline, kubeconfig=furnished.kubeconfig)

    def notes(*values: str) -> str:
        words = ("install", "trimtab", CHART, "--namespace", NAMESPACE, "--dry-run=server", "--take-ownership")
        return online.run(*words, "--set", f"image.repository={IMAGE}", *values).partition("NOTES:")[2]

    said = notes()
    assert "rollout status deployment/trimtab" in said
    assert "mode: DryRun" in said
    assert "metadata: {name: main}" in said
    assert "--policy-admin-url http://pulsar-broker.messaging.svc:8080 \\\n" in said
    assert "on an emptyDir, which is deleted with its pod" in said
    assert "The five kinds and all their objects are kept" in said
    uninstall = said.partition("helm uninstall")[2]
    assert "the image can't be pulled" in uninstall
    assert "after 180 s" in uninstall
    assert "trimtab restore -n messaging --stop-deployment trimtab --lease-name trimtab\n" in uninstall
    assert "helm uninstall trimtab -n messaging --no-hooks" in uninstall
    kinds = ("memory", "proposal", "decisions")
    for stays in (*(f"trimtab-{kind}-POLICY" for kind in kinds), BUDGET, "Lease trimtab"):
        assert stays in uninstall
    assert "--no-hooks" not in notes("--set", "restore.enabled=false")
    listed = notes("--set", "allowUrls={*.svc,https://mimir.example.com}")
    assert "--lease-name trimtab --allow-url '*.svc' --allow-url 'https://mimir.example.com'\n" in listed
    assert "ALL POLICIES" in notes("--set", "crds.keep=false")
    assert "trimtab restore -n messaging" in notes("--set", "restore.enabled=false")
    assert "on the claim mine" in notes("--set", "replicas=1,history.volume=claim,history.existingClaim=mine")
