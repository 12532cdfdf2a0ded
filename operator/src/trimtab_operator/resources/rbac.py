"""What the operator may do to the objects of its Kubernetes namespace: one row per kind, with a reason for each verb.

This is the only place that says so. `deploy/rbac.yaml` is rendered from it, and `trimtab rbac` prints it for another
namespace. The tests run the operator under exactly this Role, and compare the rows with the API server's audit log: a
verb that is missing, and one that nobody uses, are findings. To add a right, add a word to a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.resources.common import GROUP
from trimtab_operator.resources.rendering import to_yaml

NAME = "trimtab"
"""Name of the ServiceAccount, the Role and the RoleBinding."""
NAMESPACE = "messaging"
"""The Kubernetes namespace in `deploy/rbac.yaml`."""
FILE = "rbac.yaml"

_RBAC = "rbac.authorization.k8s.io"
_HEAD = """\
# Rendered by `trimtab rbac --write deploy` from trimtab_operator.resources.permissions. Do not edit.
# For another namespace: trimtab rbac --namespace NAME | kubectl apply -f -
"""


@dataclass(frozen=True, slots=True)
class Permission:
    """Rights on one resource of the namespace. group: empty for core kinds. verbs: verb -> what it is used for."""

    group: str
    resource: str
    verbs: Mapping[str, str]

    def rule(self) -> dict[str, Any]:
        """The rule of a Role."""
        return {"apiGroups": [self.group], "resources": [self.resource], "verbs": sorted(self.verbs)}


_FOLLOW = {"list": "the operator's own picture", "watch": "the operator's own picture"}
_KOPF = {
    "list": "Kopf's handlers are called for each",
    "watch": "Kopf's handlers are called for each change",
    "patch": "Kopf keeps its progress in annotations, and a finalizer while a policy's loop runs",
}

PERMISSIONS = (
    Permission(GROUP, "balancingpolicies", {**_KOPF, "get": "status is written on top of the newest version"}),
    Permission(GROUP, "balancingpolicies/status", {"patch": "conditions, proposal, last cycle"}),
    Permission(
        GROUP,
        "topicnamespaces",
        {
            **_KOPF,
            "get": "the owner of a split's children",
            "create": "Pulsar has a namespace",
            "delete": "a namespace that was discovered is gone in Pulsar",
        },
    ),
    Permission(GROUP, "topicnamespaces/status", {"patch": "number of bundles, conditions"}),
    Permission(
        GROUP,
        "bundles",
        {
            **_FOLLOW,
            "get": "a bundle that exists already, the parts of a split",
            "create": "a namespace is cut, a bundle is split, Pulsar has one",
            "patch": "the wished owner",
            "delete": "a bundle that was split or is gone in Pulsar, children of a split that failed",
        },
    ),
    Permission(
        GROUP,
        "bundles/status",
        {"patch": "an owner that is gone can't let go itself; the steps of a split; what Pulsar says"},
    ),
    Permission(GROUP, "brokers", {**_FOLLOW, "create": "a pod or a broker was found", "delete": "it is gone for good"}),
    Permission(GROUP, "brokers/status", {"patch": "ready, load, number of bundles, whether it is drained"}),
    Permission(
        GROUP,
        "bundlesplits",
        {
            **_FOLLOW,
            "get": "whether the split of a child still goes on",
            "create": "the policy's rule splits a bundle",
            "patch": "a split becomes its topic namespace's",
            "delete": "it is finished, and its time is over",
        },
    ),
    Permission(GROUP, "bundlesplits/status", {"patch": "phase, children, conditions"}),
    Permission("", "pods", _FOLLOW),
    Permission(
        "",
        "configmaps",
        {
            "get": "what a policy remembers, its proposal, its latest decisions; what was found of Pulsar's balancing",
            "create": "the same, for the first time",
            "patch": "the same, when it changed",
            "delete": "Pulsar's own balancing is as it was found",
        },
    ),
    Permission("", "secrets", {"get": "credentials of a policy's source, if their owner released them by a label"}),
    Permission(
        "coordination.k8s.io",
        "leases",
        {"get": "who leads", "create": "the first leader", "patch": "to lead, to go on leading, to hand over"},
    ),
    Permission("events.k8s.io", "events", {"create": "news", "patch": "the same news once more are counted"}),
)
"""All there are."""

NODES = Permission("", "nodes", {"list": "which nodes are cordoned", "watch": "which nodes are cordoned"})
"""Of the whole cluster, and only for `trimtab run --watch-nodes`."""


def manifests(namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """ServiceAccount, Role and RoleBinding for `namespace`."""
    meta = {"name": NAME, "namespace": namespace, "labels": {"app.kubernetes.io/name": NAME}}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": meta, "rules": [p.rule() for p in PERMISSIONS]},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
        },
    ]


def node_manifests(namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """ClusterRole and ClusterRoleBinding for the ServiceAccount of `namespace`, to watch nodes."""
    meta = {"name": f"{NAME}-nodes-{namespace}", "labels": {"app.kubernetes.io/name": NAME}}
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": [NODES.rule()]},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": meta["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
        },
    ]


def rendered(namespace: str = NAMESPACE, *, nodes: bool = False) -> str:
    """The text of `manifests`, with the reasons beside the verbs. nodes: with `node_manifests`."""
    documents = [*manifests(namespace), *(node_manifests(namespace) if nodes else ())]
    text = _HEAD + "---\n".join(map(to_yaml, documents))
    for permission in (*PERMISSIONS, *([NODES] if nodes else ())):
        text = _explained(text, permission)
    return text


def _explained(text: str, permission: Permission) -> str:
    """`text` with a comment at each verb of the rule of `permission`."""
    rule = f"      - {permission.resource}\n    verbs:\n"
    before, found, after = text.partition(rule)
    assert found, f"there is no rule for {permission.resource}"
    for verb, why in permission.verbs.items():
        after = after.replace(f"      - {verb}\n", f"      - {verb}  # {why}\n", 1)
    return before + found + after
