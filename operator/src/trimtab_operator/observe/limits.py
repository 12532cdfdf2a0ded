"""What the brokers' pods say: which container is the broker, what its limits are, and why a broker can't be measured.

The limits of a pod that the operator sees come before those in metrics, because several pods of a name may share a
metrics server, and because metrics don't tell which limit is in force. A policy's own query comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab_operator.kube.broker_records import BrokerRecord, NodeRecord, PodRecord, pods_of
from trimtab_operator.kube.pod_limits import LIMITED, Limit
from trimtab_pipeline.api import PrometheusSettings
from trimtab_strategies.model import ClusterLoad, DataQuality, Doubt, LimitOrigin, Reason, some

_NAMED = 3
"""Brokers that a line names."""
_FIELD = "spec.source.prometheus.container"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What pods say about brokers, by the names of the brokers.

    pods: name of each broker's pod. containers: name of the broker's container. limits: by resource; NaN where the pod
    has no limit and its node is unknown. problems: why a broker can't be measured as the policy is written.
    """

    pods: Mapping[str, str] = field(default_factory=dict)
    containers: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, Mapping[str, Limit]] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def unlimited(self) -> dict[str, tuple[str, ...]]:
        """Resource -> brokers whose pod has no limit of it, so that the source must find what its node can allocate."""
        found = {
            what: [name for name, of in self.limits.items() if what in of and math.isnan(of[what].value)]
            for what in LIMITED
        }
        return {what: tuple(names) for what, names in found.items() if names}


NO_FACTS = PodFacts()
"""No pod is known."""


def pod_facts(
    brokers: Iterable[BrokerRecord],
    pods: Mapping[str, PodRecord],
    nodes: Mapping[str, NodeRecord],
    settings: PrometheusSettings,
) -> PodFacts:
    """The facts about `brokers`. pods: those of the namespace. nodes: empty where they are not watched."""
    brokers = list(brokers)
    ours = pods_of(brokers, pods)
    own_queries = {name for name, _ in settings.queries}
    measured = settings.resources == "kubernetes"
    containers, limits, problems = dict[str, str](), dict[str, dict[str, Limit]](), dict[str, str]()
    for broker in brokers:
        if (pod := ours.get(broker.name)) is None:
            problems[broker.name] = _podless(broker)
            continue
        names = [one.name for one in pod.containers]
        if not measured or not names:
            continue
        chosen = next((one for one in pod.containers if settings.container in {"", one.name}), None)
        if chosen is None:
            problems[broker.name] = _no_container(pod, names, settings.container)
            continue
        containers[broker.name] = chosen.name
        on_node = nodes[pod.node].allocatable if pod.node in nodes else {}
        limits[broker.name] = {
            resource: chosen.limits.get(resource) or Limit(on_node.get(resource, math.nan), LimitOrigin.NODE)
            for resource in LIMITED
            if f"{resource}_limit" not in own_queries
        }
    return PodFacts({name: pod.name for name, pod in ours.items()}, containers, limits, problems)


def _podless(broker: BrokerRecord) -> str:
    if broker.pod:
        return f"its pod {broker.pod} does not exist"
    return (
        f"no pod is at its address {broker.address}, so its metrics can't be found; "
        "replace it by a Broker with this spec.address, and with the name of its pod in spec.pod"
    )


def _no_container(pod: PodRecord, names: Sequence[str], given: str) -> str:
    return f"its pod {pod.name} has no container {given}, but {some(names)}; correct {_FIELD}, or leave it out"


def with_facts(load: ClusterLoad, facts: PodFacts, brokers: Mapping[str, BrokerRecord]) -> ClusterLoad:
    """`load` with the origins of limits that pods or users gave, and with the reasons why brokers can't be measured.

    A broker whose policy names a container that its pod does not have is not trusted, whatever was measured.
    """
    quality, trusted = load.quality, load.brokers.trusted.copy()
    doubts, limits = dict(quality.doubts), {name: dict(found) for name, found in quality.limits.items()}
    for row, name in enumerate(load.brokers.names):
        for resource, limit in facts.limits.get(name, {}).items():
            limits.setdefault(name, {})[resource] = limit.origin
        if name in brokers:
            declared = dict.fromkeys(set(LIMITED) & set(brokers[name].capacity), LimitOrigin.CAPACITY)
            limits.setdefault(name, {}).update(declared)
        never = not trusted[row] and (name not in doubts or doubts[name].reason is Reason.NO_LOAD_DATA)
        if (problem := facts.problems.get(name)) and (never or name in facts.pods):
            doubts[name], trusted[row] = Doubt(Reason.NO_LOAD_DATA, problem), False
    quality = replace(quality, doubts=doubts, limits={name: found for name, found in limits.items() if found})
    return replace(load, brokers=replace(load.brokers, trusted=trusted), quality=quality)


def limit_lines(quality: DataQuality) -> list[str]:
    """What counts as 100 %, a line for each resource and origin. Brokers are named where they differ."""
    brokers: dict[tuple[str, LimitOrigin], list[str]] = {}
    for broker, origins in quality.limits.items():
        for resource, origin in origins.items():
            brokers.setdefault((resource, origin), []).append(broker)
    return [
        f"100 % of {resource} is {origin}" + ("" if len(named) == len(quality.limits) else f" ({some(named, _NAMED)})")
        for (resource, origin), named in sorted(brokers.items())
    ]
