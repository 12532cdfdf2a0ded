"""Runs the operator in tests as the ServiceAccount of `deploy/rbac.yaml`, with exactly the shipped permissions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from trimtab_testbed.servers.kube import ControlPlane

FILE = Path(__file__).parents[3] / "deploy" / "rbac.yaml"
_COLLECTIONS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}


def shipped_kubeconfig(plane: ControlPlane, text: str = "") -> Path:
    """Apply the file, or its changed `text`; returns a kubeconfig with a token of its ServiceAccount."""
    manifests = list(yaml.safe_load_all(text or FILE.read_text()))
    for manifest in manifests:
        plane.rest.create(_COLLECTIONS[manifest["kind"]].format(manifest["metadata"]["namespace"]), manifest)
    (account,) = (m["metadata"] for m in manifests if m["kind"] == "ServiceAccount")
    path = f"{_COLLECTIONS['ServiceAccount'].format(account['namespace'])}/{account['name']}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
    token = plane.rest.create(path, request)["status"]["token"]
    return plane.write_kubeconfig(account["name"], {"token": token}, namespace=account["namespace"])


def granted() -> set[tuple[str, str, str]]:
    """(group, resource, verb) of each shipped permission."""
    (role,) = (m for m in yaml.safe_load_all(FILE.read_text()) if m["kind"] == "Role")
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked(events: Iterable[dict[str, Any]], namespace: str) -> dict[tuple[str, str, str], set[int]]:
    """The HTTP statuses of the ServiceAccount's requests in an audit log, by (group, resource, verb)."""
    found: dict[tuple[str, str, str], set[int]] = {}
    for event in events:
        reference = event.get("objectRef")
        if event["user"]["username"] != f"system:serviceaccount:{namespace}:trimtab" or reference is None:
            continue
        resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
        right = (reference.get("apiGroup", ""), resource, event["verb"])
        found.setdefault(right, set()).add(event.get("responseStatus", {}).get("code", 0))
    return found
