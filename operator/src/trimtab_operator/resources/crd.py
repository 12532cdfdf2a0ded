"""The five kinds, their printer columns, and their CRD manifests, rendered from the pydantic models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel

from trimtab_operator.resources.broker import BrokerSpec, BrokerStatus
from trimtab_operator.resources.bundle import BundleSpec, BundleStatus
from trimtab_operator.resources.bundle_split import BundleSplitSpec, BundleSplitStatus
from trimtab_operator.resources.common import GROUP, VERSION
from trimtab_operator.resources.policy import BalancingPolicySpec, BalancingPolicyStatus
from trimtab_operator.resources.schema import structural
from trimtab_operator.resources.topic_namespace import TopicNamespaceSpec, TopicNamespaceStatus


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column. wide: shown only by ``kubectl get -o wide``."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of custom resource. selectable: fields for ``--field-selector`` and watches."""

    kind: str
    plural: str
    short: str
    doc: str
    spec: type[BaseModel]
    status: type[BaseModel]
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()


def _condition(name: str, of: str = "status") -> str:
    return f".status.conditions[?(@.type=='{name}')].{of}"


_AGE = Column("Age", ".metadata.creationTimestamp", "date")


TOPIC_NAMESPACE = Kind(
    kind="TopicNamespace",
    plural="topicnamespaces",
    short="tns",
    doc="A namespace of topics (tenant/name in Pulsar), divided into bundles: hash ranges that brokers own.",
    spec=TopicNamespaceSpec,
    status=TopicNamespaceStatus,
    columns=(
        Column("Tenant", ".spec.tenant"),
        Column("Topic Namespace", ".spec.name"),
        Column("Bundles", ".status.bundles", "integer"),
        Column("Ready", _condition("Ready")),
        Column("Message", _condition("Ready", "message"), wide=True),
        Column("Problem", _condition("Valid", "message"), wide=True, description="Problem of isolation or zone"),
        _AGE,
    ),
)


BUNDLE = Kind(
    kind="Bundle",
    plural="bundles",
    short="bdl",
    doc="A hash range of a topic namespace, with its desired owner (spec) and its actual owner (status).",
    spec=BundleSpec,
    status=BundleStatus,
    columns=(
        Column("Desired", ".spec.owner", description="Desired owner"),
        Column("Owner", ".status.owner", description="Actual owner"),
        Column("State", ".status.state"),
        Column("Since", ".status.since", "date", description="Time since owner or state changed"),
        Column(
            "Reason",
            ".spec.assignment.reason",
            description="Reason of the desired owner; Admin once the operator has seen a user's change",
        ),
        Column("Pinned", ".spec.pinned", "boolean", wide=True),
        Column("Lower", ".spec.range.lower", wide=True),
        Column("Upper", ".spec.range.upper", wide=True),
        Column("Policy", ".spec.assignment.policy", wide=True),
        _AGE,
    ),
    selectable=(".spec.owner", ".status.owner"),
)


BROKER = Kind(
    kind="Broker",
    plural="brokers",
    short="bkr",
    doc="A broker of the messaging cluster: discovered by its pod, or declared by its address.",
    spec=BrokerSpec,
    status=BrokerStatus,
    columns=(
        Column("Ready", ".status.ready", "boolean"),
        Column("Schedulable", ".spec.schedulable", "boolean"),
        Column("Bundles", ".status.bundles", "integer"),
        Column("CPU %", ".status.load.cpu", "number"),
        Column("Memory %", ".status.load.memory", "number"),
        Column("In %", ".status.load.networkIn", "number", description="Network received"),
        Column("Out %", ".status.load.networkOut", "number", description="Network sent"),
        Column("Address", ".spec.address", wide=True),
        Column("Weight", ".spec.weight", "number", wide=True, description="Fixed weight, set by a user"),
        Column("Target Weight", ".status.targetWeight", "number", wide=True, description="1 is an average broker"),
        Column(
            "Score %",
            ".status.score",
            "number",
            wide=True,
            description="Percent of the total load that the shedder expects it to carry",
        ),
        Column("Drained", _condition("Drained"), wide=True, description="Whether a broker that drains is empty"),
        Column("Keeps", _condition("Drained", "message"), wide=True, description="Bundles left on the broker, and why"),
        _AGE,
    ),
)


BUNDLE_SPLIT = Kind(
    kind="BundleSplit",
    plural="bundlesplits",
    short="bspl",
    doc="A request by a user or a policy to split a bundle, and its progress.",
    spec=BundleSplitSpec,
    status=BundleSplitStatus,
    columns=(
        Column("Bundle", ".spec.bundle"),
        Column("Phase", ".status.phase"),
        Column("Accepted", _condition("Accepted")),
        Column("Reason", ".status.reason", description="Why it was requested, waits or failed"),
        Column("Message", ".status.message", description="What it waits for, or why it failed"),
        Column("Policy", ".spec.request.policy", wide=True),
        Column("Source", ".status.source", wide=True, description="Broker that owned the bundle"),
        _AGE,
    ),
)


BALANCING_POLICY = Kind(
    kind="BalancingPolicy",
    plural="balancingpolicies",
    short="bpol",
    doc="How a cluster's load is balanced: strategies, limits, and whether the operator may act.",
    spec=BalancingPolicySpec,
    status=BalancingPolicyStatus,
    columns=(
        Column("Mode", ".spec.mode"),
        Column("Ready", _condition("Ready")),
        Column("Outcome", ".status.lastCycle.outcome", description="Result of the last cycle"),
        Column("Proposal", ".status.proposal.state", description="State of the proposal (mode Approve)"),
        Column(
            "Proposed",
            ".status.proposal.total",
            "integer",
            description="Moves that are proposed, or that were planned last and have not landed",
        ),
        Column("In Flight", ".status.inFlight", "integer", description="Pending moves"),
        Column("CPU Low", ".status.lastCycle.cpu.lowest", "number", description="CPU % of the least used broker"),
        Column("CPU High", ".status.lastCycle.cpu.highest", "number", description="CPU % of the most used broker"),
        Column("Last Cycle", ".status.lastCycle.time", "date"),
        Column("Proposal Id", ".status.proposal.id", wide=True),
        Column(
            "Done %",
            ".status.progress.percent",
            "integer",
            wide=True,
            description="Progress of the last approved proposal",
        ),
        Column("Shedder", ".spec.shedder.type", wide=True),
        Column("Placement", ".spec.placement.type", wide=True),
        Column("Message", _condition("Ready", "message"), wide=True),
        _AGE,
    ),
)


KINDS = (TOPIC_NAMESPACE, BUNDLE, BROKER, BUNDLE_SPLIT, BALANCING_POLICY)
"""All kinds."""


CATEGORY = "trimtab"
"""``kubectl get trimtab`` lists objects of all kinds."""


_HEAD = "# Rendered by `trimtab crds --write crds` from the models in trimtab_operator.resources. Do not edit.\n"


def manifests() -> dict[str, dict[str, Any]]:
    """File name -> CustomResourceDefinition, for each kind."""
    return {f"{GROUP}_{kind.plural}.yaml": manifest(kind) for kind in KINDS}


def rendered_crds() -> dict[str, str]:
    """File name -> text of the file, for each kind."""
    return {name: _HEAD + to_yaml(crd) for name, crd in manifests().items()}


def to_yaml(document: Mapping[str, Any]) -> str:
    """Convert to YAML, with keys in their order and without anchors."""
    return yaml.dump(document, Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)


def manifest(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind. Raises `InexpressibleError`."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": [kind.short],
                "categories": [CATEGORY],
            },
            "versions": [_version(kind)],
        },
    }


def _version(kind: Kind) -> dict[str, Any]:
    version: dict[str, Any] = {"name": VERSION, "served": True, "storage": True, "subresources": {"status": {}}}
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    version["additionalPrinterColumns"] = [_column(column) for column in kind.columns]
    version["schema"] = {"openAPIV3Schema": _schema(kind)}
    return version


def _column(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        shown["description"] = column.description
    if column.wide:
        shown["priority"] = 1
    return shown


def _schema(kind: Kind) -> dict[str, Any]:
    return {
        "description": kind.doc,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": kind.kind},
            "metadata": {"type": "object"},
            "spec": structural(kind.spec),
            "status": structural(kind.status),
        },
    }


class _Plain(yaml.SafeDumper):
    """Writes no anchors, and indents lists below their key."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML's signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, indentless=False)
