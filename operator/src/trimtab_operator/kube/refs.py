"""Where each kind of object lives in the API."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from trimtab_operator.resources.common import GROUP, VERSION


@dataclass(frozen=True, slots=True)
class ResourceRef:
    """One kind as the API server addresses it; `group` is empty for the core kinds."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """``group/version``, or just the version of a core kind: what stands in an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of a collection, an object or its subresource; of the whole cluster if `namespace` is empty."""
        root = ["apis", self.group, self.version] if self.group else ["api", self.version]
        scope = ["namespaces", namespace] if namespace else []
        parts = [*root, *scope, self.plural, *filter(None, (name, subresource))]
        return "/" + "/".join(quote(part, safe="") for part in parts)


BUNDLES = ResourceRef(GROUP, VERSION, "bundles", "Bundle")
BROKERS = ResourceRef(GROUP, VERSION, "brokers", "Broker")
TOPIC_NAMESPACES = ResourceRef(GROUP, VERSION, "topicnamespaces", "TopicNamespace")
BUNDLE_SPLITS = ResourceRef(GROUP, VERSION, "bundlesplits", "BundleSplit")
POLICIES = ResourceRef(GROUP, VERSION, "balancingpolicies", "BalancingPolicy")
PODS = ResourceRef("", "v1", "pods", "Pod")
NODES = ResourceRef("", "v1", "nodes", "Node")
CONFIG_MAPS = ResourceRef("", "v1", "configmaps", "ConfigMap")
SECRETS = ResourceRef("", "v1", "secrets", "Secret")
LEASES = ResourceRef("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = ResourceRef("events.k8s.io", "v1", "events", "Event")
CUSTOM_RESOURCE_DEFINITIONS = ResourceRef(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"
)
