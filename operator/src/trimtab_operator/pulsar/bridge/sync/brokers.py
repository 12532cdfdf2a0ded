"""Which Broker object stands for which broker that Pulsar lists. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.kube.broker_records import BrokerRecord, PodRecord
from trimtab_operator.kube.naming import broker_name_of_address
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.common import API_VERSION


@dataclass(slots=True)
class Identified:
    """By name of a Broker object the id by which Pulsar knows it, of the active ones; Broker objects to create."""

    ids: dict[str, str] = field(default_factory=dict)
    create: list[dict[str, Any]] = field(default_factory=list)


def host_of(broker: str) -> str:
    """The host in ``host:webPort``."""
    return broker.rpartition(":")[0]


def identify(active: Iterable[str], brokers: Mapping[str, BrokerRecord], pods: Mapping[str, PodRecord]) -> Identified:
    """Find the Broker object of each active broker (``host:webPort``), or make one.

    The one that a person declared for this address; else the one that stands for the pod whose name is the first label
    of the host (as a StatefulSet's pods are called) and names no address; else the one that was made for the address
    before; else a new one, for that pod if there is one.
    """
    found, ordered = Identified(), sorted(brokers.values(), key=lambda b: b.name, reverse=True)
    declared = {b.address: b.name for b in ordered if b.address and not b.discovered}
    by_pod = {b.pod: b.name for b in ordered if b.pod and not b.address}
    made = {b.address: b.name for b in ordered if b.address and b.discovered}
    for broker in sorted(active, key=lambda broker: (broker not in declared, broker)):
        pod = host_of(broker).partition(".")[0]
        names = (declared.get(broker), by_pod.get(pod), made.get(broker))
        name = next((name for name in names if name and name not in found.ids), None)
        if name is not None:
            found.ids[name] = broker
        else:
            _make(found, broker, pod if pod in pods and pod not in by_pod else "", brokers)
    return found


def _make(found: Identified, broker: str, pod: str, brokers: Mapping[str, BrokerRecord]) -> None:
    """A new Broker object for `broker`, unless its name is a person's for something else."""
    name = pod if pod and pod not in brokers else broker_name_of_address(broker)
    if name in brokers or name in found.ids:
        return
    spec = {"pod": pod} if name == pod else {"address": broker}
    found.ids[name] = broker
    meta = {"name": name, "labels": {DISCOVERED: "true"}}
    found.create.append({"apiVersion": API_VERSION, "kind": "Broker", "metadata": meta, "spec": spec})
