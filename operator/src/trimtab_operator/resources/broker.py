"""`Broker`: one broker of the cluster, discovered from its pod or declared by a user."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from trimtab_operator.resources.common import Conditions, Name, Resource, Status, Timestamp, cel
from trimtab_strategies.params import PositiveQuantity

DISCOVERED = "trimtab.dev/discovered"
"""Label of a discovered object: a Broker (of a pod, or of a broker that Pulsar lists) or a TopicNamespace (of a
namespace in Pulsar). The operator deletes the object when that pod, broker or namespace no longer exists."""

Percent = Annotated[float, Field(ge=0)]
"""Usage in percent of the limit. A source may report more than 100."""


class Capacity(Resource):
    """Capacity of the broker: the values that count as 100 %. They override the limits from Prometheus. Absent fields
    keep the reported limit."""

    cpu: PositiveQuantity | None = None
    """CPU cores that count as 100 %, such as 8 or 500m."""
    memory: PositiveQuantity | None = None
    """Bytes of memory that count as 100 %, such as 64Gi."""
    network_in: PositiveQuantity | None = None
    """Bytes/s received that count as 100 %, such as 1250M."""
    network_out: PositiveQuantity | None = None
    """Bytes/s sent that count as 100 %, such as 1250M."""


_STANDS_FOR = "pod or address must be set"
_SAME_BROKER = " && ".join(
    f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    for field in ("pod", "address")
)
_OTHER_BROKER = "pod and address are immutable: create another Broker"


class BrokerSpec(Resource):
    """Desired state of a broker."""

    model_config = ConfigDict(
        json_schema_extra=cel(("has(self.pod) || has(self.address)", _STANDS_FOR), (_SAME_BROKER, _OTHER_BROKER))
    )

    pod: Name | None = None
    """Name of the broker's pod. Its metrics carry this name as a label. Discovery sets it. Immutable."""
    address: Annotated[str, Field(pattern=r"^[^/ ]+:[0-9]+$", max_length=253)] | None = None
    """`host:webPort` of a broker without a pod. Immutable."""
    schedulable: bool = True
    """Whether the broker may receive bundles. If false, the broker is drained: a policy in mode Auto moves its bundles
    to other brokers."""
    capacity: Capacity | None = None
    """Capacity that overrides the limits from Prometheus."""
    weight: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Share of load relative to other brokers. 2 is twice the load of an average broker without a weight. If absent, a
    shedder with target weights (WeightedBalancer) learns it from usage. Other shedders ignore it."""
    failure_domain: Annotated[str, Field(max_length=253)] = ""
    """Zone or rack of the broker. A selection with failureDomains spreads anti-affinity groups over these domains.
    If empty, the label topology.kubernetes.io/zone of the pod applies."""
    version: Annotated[str, Field(max_length=64)] = ""
    """Version of the broker's software, such as 4.2.4. A policy whose selection has preferLaterVersions compares it."""
    load_manager: Annotated[str, Field(max_length=300)] = ""
    """Class name of the broker's load manager. A policy whose selection has loadManager compares it. An empty value
    always matches."""

    @model_validator(mode="after")
    def _stands_for_something(self) -> Self:
        if self.pod is None and self.address is None:
            raise ValueError(_STANDS_FOR)
        return self


class BrokerLoad(Status):
    """Load of a broker in percent of its limits. Written when it changes by one percentage point or more."""

    cpu: Percent | None = None
    """Percent of the CPU limit."""
    memory: Percent | None = None
    """Percent of the memory limit (working set)."""
    network_in: Percent | None = None
    """Percent of what the network can receive."""
    network_out: Percent | None = None
    """Percent of what the network can send."""


class BrokerStatus(Status):
    """Observed state of a broker."""

    id: Annotated[str, Field(max_length=260)] = ""
    """Broker id in Pulsar, `host:webPort`. Set if the policy has `spec.pulsar`."""
    ready: bool = False
    """Whether the broker is ready: its pod, if any, is Ready and, with `spec.pulsar`, Pulsar lists the broker."""
    load: BrokerLoad | None = None
    """Load of the broker, updated when it changes by at least one percentage point."""
    bundles: Annotated[int, Field(ge=0)] = 0
    """Number of bundles that the broker owns."""
    target_weight: Annotated[float, Field(ge=0)] | None = None
    """Target weight, in the unit of spec.weight. The policy's shedder learns it, or spec.weight fixes it. Updated when
    it changes noticeably. Absent if the shedder has no target weights."""
    score: Annotated[float, Field(ge=0, le=100)] | None = None
    """Percent of the cluster's load that this broker can carry, as the shedder has learned. Absent if the weight is
    fixed."""
    last_seen: Timestamp | None = None
    """When the broker was last ready. Set when it stops being ready."""
    policy: Annotated[str, Field(max_length=253)] = ""
    """Name of the BalancingPolicy that manages the broker. Once the pod is gone: the policy that managed it last."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the spec that this status describes."""
    conditions: Conditions = Field(default_factory=list)
    """`Ready`: like the field `ready`, with a message that says what is missing. `Drained`: True once the broker owns
    no bundles. `Drained` is set only for a broker that is not schedulable, or whose node is cordoned."""
