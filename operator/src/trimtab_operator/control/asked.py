"""What people ask for topic namespaces and say of brokers, in the words of the strategies. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from trimtab_operator.cluster.brokers import BrokerRecord, PodRecord
from trimtab_operator.cluster.topic_namespaces import TopicNamespaceRecord
from trimtab_strategies.model import NO_POLICY, BrokerTraits, NamespacePolicy

ZONE = "topology.kubernetes.io/zone"
"""Label of the failure domain; recent Kubernetes copies it from a node to its pods."""


def policies(spaces: Iterable[TopicNamespaceRecord]) -> dict[str, NamespacePolicy]:
    """What is asked, by ``tenant/name``, of the namespaces for which anything is.

    Where two objects speak of one namespace, the one that has its bundles counts, else the first by name.
    """
    found: dict[str, NamespacePolicy] = {}
    for record in sorted(spaces, key=lambda record: (not record.bundles, record.name)):
        found.setdefault(record.full_name, record.policy)
    return {space: policy for space, policy in found.items() if policy != NO_POLICY}


def traits(
    brokers: Iterable[BrokerRecord], pods: Mapping[str, PodRecord], *, load_manager: str = ""
) -> dict[str, BrokerTraits]:
    """What each broker is, by name, of those of which anything is known.

    load_manager: what a policy asks for; a broker that does not say which one it runs is taken to run this.
    """
    found = {}
    for broker in brokers:
        domain = broker.failure_domain or _zone(pods.get(broker.pod))
        weight = math.nan if broker.weight is None else broker.weight
        if domain or broker.version or broker.load_manager or broker.weight is not None:
            manager = broker.load_manager or load_manager
            found[broker.name] = BrokerTraits(broker.version, domain, manager, weight=weight)
    return found


def _zone(pod: PodRecord | None) -> str:
    return "" if pod is None else pod.labels.get(ZONE, "")
