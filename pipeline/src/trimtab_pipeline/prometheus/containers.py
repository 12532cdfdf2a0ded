"""Which rows of a pod are about its broker: the rows of the broker's container, and the limit that applies to it.

cAdvisor has a row for each container of a pod, and rows with an empty label ``container`` for the pod as a whole and
for its sandbox. Some distributions (k3s, RKE2) leave the label empty in all rows. Then the pod as a whole counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import Topology
from trimtab_pipeline.columns import LIMITED
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_strategies.model import some

USUAL = "broker"
"""The name of a container that neither the user nor the pod tells."""
_NAMED = 3  # pods that a note names


@dataclass(frozen=True, slots=True)
class Containers:
    """The brokers' containers. names: pod -> container, of the pods whose container is known.

    given: the container that a user named for all pods; empty for none.
    unlimited: resource -> pods that are known to have no limit of it.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    given: str = ""
    unlimited: Mapping[str, Collection[str]] = field(default_factory=dict)

    @classmethod
    def among(cls, pods: Collection[str], topology: Topology) -> Self:
        """What `topology` says about the containers of `pods`."""
        names = dict(zip(topology.pods, topology.containers, strict=False))
        pod_of = dict(zip(topology.brokers, topology.pods, strict=True))
        unlimited = {what: {pod_of[broker] for broker in brokers} for what, brokers in topology.unlimited.items()}
        return cls(
            {pod: name for pod in pods if (name := names.get(pod))},
            unlimited={what: tuple(pod for pod in pods if pod in theirs) for what, theirs in unlimited.items()},
        )

    def of(self, pod: str) -> str:
        """The name of a pod's container; `USUAL` if it is unknown."""
        return self.given or self.names.get(pod) or USUAL

    def chosen(self, pod: str, found: Collection[str]) -> str | None:
        """Which of the labels ``container`` in `found` is the broker's; empty: the whole pod. None: it is unclear.

        Other names than the expected one do not replace a name that a user gave.
        """
        named = [name for name in found if name]
        if (wanted := self.of(pod)) in named:
            return wanted
        if named and self.given:
            return None
        if len(named) == 1:
            return named[0]
        return "" if "" in found else None


NO_NAMES = Containers()
"""No container is known by name."""


def own_rows(answer: Samples, containers: Containers) -> tuple[Samples, list[str]]:
    """The series of the brokers' containers, and notes on pods with none.

    answer: series of all containers. Of several rows without a container, the one with the shortest cgroup counts: it
    is the pod, and the others are parts of it.
    """
    keys = list(zip(*(answer.label(name).to_pylist() for name in ("__name__", "pod")), strict=True))
    labels, ids = (answer.label(name).to_pylist() for name in ("container", "id"))
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for key, label, cgroup in zip(keys, labels, ids, strict=True):
        found[key][label] = min(len(cgroup), found[key].get(label, len(cgroup)))
    chosen = {key: containers.chosen(key[1], theirs) for key, theirs in found.items()}
    keep = [
        chosen[key] == label and (bool(label) or len(cgroup) == found[key][label])
        for key, label, cgroup in zip(keys, labels, ids, strict=True)
    ]
    unclear: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for (metric, pod), label in chosen.items():
        if label is None:
            unclear[tuple(sorted(filter(None, found[metric, pod])))].add(pod)
    return answer.filter(pa.array(keep, pa.bool_())), list(_notes(unclear, containers.given))


def _notes(unclear: Mapping[tuple[str, ...], Collection[str]], given: str) -> Iterator[str]:
    for names, pods in unclear.items():
        there = f"{some(sorted(pods), _NAMED)}: there are metrics of the containers {some(names)}"
        wrong = f", and none of {given}" if given else ", and which one is the broker is unknown"
        yield f"{there}{wrong}; set source.prometheus.container (--container) to the broker's"


def settled_limits(
    values: Mapping[str, pa.Array], unlimited: Mapping[str, Collection[str]]
) -> tuple[dict[str, pa.Array], dict[str, list[str]]]:
    """Rows of single values with one limit for each pod and resource, and the pods whose limit is that of their node.

    values: columns of `BROKER_SAMPLES`, with the signals ``cpu_limit`` and ``cpu_node`` (and those of memory).
    unlimited: resource -> pods that are known to have no limit. If metrics show one, it is of another pod of the name.
    """
    rows = list(zip(values["pod"].to_pylist(), values["signal"].to_pylist(), strict=True))
    limits, nodes = ({f"{resource}_{kind}": resource for resource in LIMITED} for kind in ("limit", "node"))
    limited = {(pod, limits[signal]) for pod, signal in rows if signal in limits}
    limited -= {(pod, resource) for resource, theirs in unlimited.items() for pod in theirs}
    keep, names, of_node = list[bool](), list[str](), defaultdict[str, list[str]](list)
    for pod, signal in rows:
        on_node = signal in nodes and (pod, nodes[signal]) not in limited
        keep.append(on_node or (signal not in nodes and (signal not in limits or (pod, limits[signal]) in limited)))
        names.append(f"{nodes[signal]}_limit" if on_node else signal)
        if on_node:
            of_node[nodes[signal]].append(pod)
    columns = dict(values) | {"signal": pa.array(names, pa.string())}
    return {name: column.filter(pa.array(keep, pa.bool_())) for name, column in columns.items()}, dict(of_node)


def odd_limits(values: Mapping[str, pa.Array]) -> Iterator[str]:
    """Notes on limits that are NaN. They count as unknown, so such a broker needs a declared capacity."""
    odd = pa.table([values["signal"], values["pod"]], ["signal", "pod"]).filter(pc.is_nan(values["value"]))
    pods: dict[str, list[str]] = defaultdict(list)
    for row in odd.to_pylist():
        if row["signal"].endswith("_limit"):
            pods[row["signal"]].append(row["pod"])
    for signal, ours in pods.items():
        resource = signal.removesuffix("_limit").replace("_", " ")
        named = some(sorted(ours), _NAMED)
        yield f"{named}: the limit of {resource} is NaN and counts as unknown; see what its query returns"
