"""Permissions of the operator in its Kubernetes namespace: one row per kind, with a reason for each verb.

`deploy/rbac.yaml` is rendered from this table, and `trimtab rbac` prints it for another namespace. The tests run the
operator under exactly this Role, and compare the rows with the API server's audit log. They report a missing verb, and
an unused one. To add a permission, add a verb to a row.
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
"""Name of the ConfigMap with the former settings of Pulsar's own balancer."""
FILE = "rbac.yaml"

_RBAC = "rbac.authorization.k8s.io"
_HEAD = """\
# Rendered by `trimtab rbac --write deploy` from trimtab_operator.resources.rbac. Do not edit.
# For another namespace: trimtab rbac --namespace NAME | kubectl apply -f -
"""


@dataclass(frozen=True, slots=True)
class Permission:
    """Permissions on one resource of the namespace.

    group: empty for core kinds. verbs: purpose by verb. name: the only object that the rule allows; empty for all.
    named: comment on that name. A rule with a name can't have `create`, because Kubernetes does not know the name of a
    new object when it authorizes.
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
        """The YAML text of the rule, with the reasons as comments."""
        head, _, _ = _rule_text(self.rule()).partition("    verbs:\n")
        if self.name:
            head = f"{head.rstrip()}  # {self.named}\n"  # the name is the last line before the verbs
        return head + "    verbs:\n" + "".join(f"      - {verb}  # {self.verbs[verb]}\n" for verb in sorted(self.verbs))


def _rule_text(rule: Mapping[str, Any]) -> str:
    return to_yaml({"rules": [rule]}).removeprefix("rules:\n")


_FOLLOW = {"list": "fills the operator's store", "watch": "updates the operator's store"}
_KOPF = {
    "list": "Kopf calls handlers for each object",
    "watch": "Kopf calls handlers for each change",
    "patch": "commands are taken off; a finalizer while Pulsar's own balancer is switched off",
}

PERMISSIONS = (
    Permission(GROUP, "balancingpolicies", {**_KOPF, "get": "the status is patched on the newest version"}),
    Permission(GROUP, "balancingpolicies/status", {"patch": "conditions, proposal, last cycle"}),
    Permission(
        GROUP,
        "topicnamespaces",
        {
            **_FOLLOW,
            "get": "the owner reference of a split's children",
            "create": "a namespace was discovered in Pulsar",
            "patch": "settings of a discovered namespace have changed in Pulsar",
            "delete": "a namespace that was discovered no longer exists in Pulsar",
        },
    ),
    Permission(GROUP, "topicnamespaces/status", {"patch": "number of bundles, conditions"}),
    Permission(
        GROUP,
        "bundles",
        {
            **_FOLLOW,
            "get": "a bundle that exists already, the parts of a split",
            "create": "a namespace is divided, a bundle is split, Pulsar has a new bundle",
            "patch": "desired owners",
            "delete": "a bundle that was split or no longer exists in Pulsar, children of a split that failed",
        },
    ),
    Permission(
        GROUP,
        "bundles/status",
        {"patch": "lost owners, steps of a split, owners in Pulsar"},
    ),
    Permission(
        GROUP,
        "brokers",
        {**_FOLLOW, "create": "a pod or a broker was discovered", "delete": "its pod or broker is gone"},
    ),
    Permission(GROUP, "brokers/status", {"patch": "ready, load, number of bundles, whether it is drained"}),
    Permission(
        GROUP,
        "bundlesplits",
        {
            **_FOLLOW,
            "get": "whether the split of a child is in progress",
            "create": "the policy's rule splits a bundle",
            "patch": "a split gets its topic namespace as owner reference",
            "delete": "it is finished, and its TTL is over",
        },
    ),
    Permission(GROUP, "bundlesplits/status", {"patch": "phase, children, conditions"}),
    Permission("", "pods", _FOLLOW),
    Permission(
        "",
        "configmaps",
        {
            "get": "state, decisions and spent budgets of a policy; settings of Pulsar's balancer; authorities",
            "create": "the first write of state, decisions, budgets or settings",
            "patch": "later writes of these",
        },
    ),
    Permission(
        "",
        "configmaps",
        {"delete": "Pulsar's own balancer is restored"},
        name=PULSAR_FOUND,
        named="other ConfigMaps are deleted with their policies",
    ),
    Permission("", "secrets", {"get": "credentials of a policy, if their owner has labelled the Secret"}),
    Permission("coordination.k8s.io", "leases", {"create": "the first leader"}),
    Permission(
        "coordination.k8s.io",
        "leases",
        {"get": "the current leader", "patch": "to acquire, renew and release the Lease"},
        name=LEASE,
        named="--lease-name",
    ),
    Permission("events.k8s.io", "events", {"create": "new Events", "patch": "counts of repeated Events"}),
)
"""All permissions, with the default name of the Lease."""

_NODES = "which nodes are cordoned, and what they can allocate"
NODES = Permission("", "nodes", {"list": _NODES, "watch": _NODES})
"""Cluster-wide permission, only for `trimtab run --watch-nodes`."""


def permissions(lease: str = LEASE, stop: str = "") -> tuple[Permission, ...]:
    """`PERMISSIONS` with another name of the Lease. stop: the Deployment that `trimtab restore` may stop."""
    scale = Permission("apps", "deployments/scale", {"patch": "trimtab restore"}, name=stop, named="--stop-deployment")
    found = (replace(p, name=lease) if p.name == LEASE else p for p in PERMISSIONS)
    return (*found, scale) if stop else tuple(found)


def manifests(namespace: str = NAMESPACE, lease: str = LEASE, stop: str = "") -> list[dict[str, Any]]:
    """ServiceAccount, Role and RoleBinding for `namespace`. lease, stop: as in `permissions`."""
    meta = {"name": NAME, "namespace": namespace, "labels": {"app.kubernetes.io/name": NAME}}
    rules = [permission.rule() for permission in permissions(lease, stop)]
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


def rendered_rbac(namespace: str = NAMESPACE, *, nodes: bool = False, lease: str = LEASE, stop: str = "") -> str:
    """The text of `manifests`, with the reason next to each verb. nodes: with `node_manifests`."""
    documents = [*manifests(namespace, lease, stop), *(node_manifests(namespace) if nodes else ())]
    text = _HEAD + "---\n".join(map(to_yaml, documents))
    for permission in (*permissions(lease, stop), *([NODES] if nodes else ())):
        rule = _rule_text(permission.rule())
        assert rule in text, f"there is no rule for {permission.resource}"
        text = text.replace(rule, permission.explained(), 1)
    return text
