"""What the operator may do to the objects of its Kubernetes namespace: one row per kind, with a reason for each verb.

This is the only place that says so. `deploy/rbac.yaml` is rendered from it, and `trimtab rbac` prints it for another
namespace. The tests run the operator under exactly this Role, and compare the rows with the API server's audit log: a
verb that is missing, and one that nobody uses, are findings. To add a right, add a word to a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trimtab_operator.resources.common import GROUP
from trimtab_operator.resources.crd import to_yaml

NAME = "trimtab"
"""Name of the ServiceAccount, the Role and the RoleBinding."""
NAMESPACE = "messaging"
"""The Kubernetes namespace in `deploy/rbac.yaml`."""
LEASE = "trimtab"
"""Name of the Lease, if `trimtab run --lease-name` gives no other."""
PULSAR_FOUND = "trimtab-pulsar-found"
"""Name of the ConfigMap with what was found of Pulsar's own balancing."""
FILE = "rbac.yaml"

_RBAC = "rbac.authorization.k8s.io"
_HEAD = """\
# Rendered by `trimtab rbac --write deploy` from trimtab_operator.resources.rbac. Do not edit.
# For another namespace: trimtab rbac --namespace NAME | kubectl apply -f -
"""


@dataclass(frozen=True, slots=True)
class Permission:
    """Rights on one resource of the namespace.

    group: empty for core kinds. verbs: verb -> what it is used for. name: of the only object that is meant; empty for
    all. named: where that name comes from. No rule with a name may have `create`: Kubernetes does not know the name of
    a new object when it decides.
    """

    group: str
    resource: str
    verbs: Mapping[str, str]
    name: str = ""
    named: str = ""

    def rule(self) -> dict[str, Any]:
        """The rule of a Role."""
        names = {"resourceNames": [self.name]} if self.name else {}
        return {"apiGroups": [self.group], "resources": [self.resource], **names, "verbs": sorted(self.verbs)}

    def explained(self) -> str:
        """The rule as it stands in a file: with the reasons beside the verbs."""
        head, _, _ = _rule_text(self.rule()).partition("    verbs:\n")
        if self.name:
            head = f"{head.rstrip()}  # {self.named}\n"  # the name is the last line before the verbs
        return head + "    verbs:\n" + "".join(f"      - {verb}  # {self.verbs[verb]}\n" for verb in sorted(self.verbs))


def _rule_text(rule: Mapping[str, Any]) -> str:
    return to_yaml({"rules": [rule]}).removeprefix("rules:\n")


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
        },
    ),
    Permission(
        "",
        "configmaps",
        {"delete": "Pulsar's own balancing is as it was found"},
        name=PULSAR_FOUND,
        named="the others go with their policies",
    ),
    Permission("", "secrets", {"get": "credentials of a policy's source, if their owner released them by a label"}),
    Permission("coordination.k8s.io", "leases", {"create": "the first leader"}),
    Permission(
        "coordination.k8s.io",
        "leases",
        {"get": "who leads", "patch": "to lead, to go on leading, to hand over"},
        name=LEASE,
        named="--lease-name",
    ),
    Permission("events.k8s.io", "events", {"create": "news", "patch": "the same news once more are counted"}),
)
"""All there are, with the Lease's usual name."""

NODES = Permission("", "nodes", {"list": "which nodes are cordoned", "watch": "which nodes are cordoned"})
"""Of the whole cluster, and only for `trimtab run --watch-nodes`."""


def permissions(lease: str = LEASE) -> tuple[Permission, ...]:
    """`PERMISSIONS` of an operator whose Lease has another name."""
    return tuple(replace(p, name=lease) if p.name == LEASE else p for p in PERMISSIONS)


def manifests(namespace: str = NAMESPACE, lease: str = LEASE) -> list[dict[str, Any]]:
    """ServiceAccount, Role and RoleBinding for `namespace`. lease: name of the Lease."""
    meta = {"name": NAME, "namespace": namespace, "labels": {"app.kubernetes.io/name": NAME}}
    rules = [permission.rule() for permission in permissions(lease)]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": meta, "rules": rules},
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


def rendered_rbac(namespace: str = NAMESPACE, *, nodes: bool = False, lease: str = LEASE) -> str:
    """The text of `manifests`, with the reasons beside the verbs. nodes: with `node_manifests`. lease: its name."""
    documents = [*manifests(namespace, lease), *(node_manifests(namespace) if nodes else ())]
    text = _HEAD + "---\n".join(map(to_yaml, documents))
    for permission in (*permissions(lease), *([NODES] if nodes else ())):
        rule = _rule_text(permission.rule())
        assert rule in text, f"there is no rule for {permission.resource}"
        text = text.replace(rule, permission.explained(), 1)
    return text
