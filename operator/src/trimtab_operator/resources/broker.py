"""`Broker`: one broker of the cluster, discovered from its pod or declared by a person."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from trimtab_operator.resources.common import Conditions, Name, Resource, Status, Timestamp, cel

DISCOVERED = "trimtab.dev/discovered"
"""Label of an object that was made for something that was found: a Broker for a pod, or for a broker that Pulsar lists;
a TopicNamespace for a namespace that Pulsar has. It is deleted once that is gone for good."""

Percent = Annotated[float, Field(ge=0)]
"""Usage of its limit in percent; above 100 when a source says so."""


class Capacity(Resource):
    """What counts as 100 %; overrides what Prometheus reports. Absent fields keep the reported limit."""

    cpu: Annotated[float, Field(gt=0, le=4096)] | None = None
    """CPU cores."""
    memory: Annotated[float, Field(gt=0)] | None = None
    """Bytes of memory."""
    network_in: Annotated[float, Field(gt=0)] | None = None
    """Bytes per second received."""
    network_out: Annotated[float, Field(gt=0)] | None = None
    """Bytes per second sent."""


_STANDS_FOR = "one of pod or address must be set"


class BrokerSpec(Resource):
    """What is wished of a broker."""

    model_config = ConfigDict(
        json_schema_extra=cel(("has(self.pod) || has(self.address)", _STANDS_FOR)),
    )

    pod: Name | None = None
    """Name of its pod, which its metrics carry as a label. Set by discovery."""
    address: Annotated[str, Field(pattern=r"^[^/ ]+:[0-9]+$", max_length=253)] | None = None
    """`host:webPort`, for a broker that no pod stands for."""
    schedulable: bool = True
    """Whether it may be given bundles. With false it is drained: a policy in mode Auto moves what it has to others."""
    capacity: Capacity | None = None
    """What counts as 100 % of it."""
    weight: Annotated[float, Field(gt=0, le=1000)] | None = None
    """How much it should carry, relative to the others: 2 is twice what an average broker without a weight carries.
    Left empty, a shedder with target weights (WeightedBalancer) learns it from usage; other shedders pay no heed."""
    failure_domain: Annotated[str, Field(max_length=253)] = ""
    """The zone or rack it fails with, which a selection with failureDomains spreads anti-affinity groups over. Left
    empty, the label topology.kubernetes.io/zone of its pod counts, if that has one."""
    version: Annotated[str, Field(max_length=64)] = ""
    """Version of its software, such as 4.2.4, which a selection with preferLaterVersions compares."""
    load_manager: Annotated[str, Field(max_length=300)] = ""
    """Class name of its load manager, which a selection with loadManager compares; left empty, it passes."""

    @model_validator(mode="after")
    def _stands_for_something(self) -> Self:
        if self.pod is None and self.address is None:
            raise ValueError(_STANDS_FOR)
        return self


class BrokerLoad(Status):
    """A summary of its load in percent of its limits, rewritten when it changes by a point or more."""

    cpu: Percent | None = None
    """CPU."""
    memory: Percent | None = None
    """Working set."""
    network_in: Percent | None = None
    """Received."""
    network_out: Percent | None = None
    """Sent."""


class BrokerStatus(Status):
    """What is observed of a broker."""

    id: Annotated[str, Field(max_length=260)] = ""
    """`host:webPort` by which Pulsar lists it, with the actuator `Pulsar`."""

    ready: bool = False
    """Whether it is alive: its pod is Ready, or a declared broker that has no pod."""
    load: BrokerLoad | None = None
    """Its load when it last changed noticeably."""
    bundles: Annotated[int, Field(ge=0)] = 0
    """How many bundles it owns."""
    target_weight: Annotated[float, Field(ge=0)] | None = None
    """How much it is to carry, in the unit of spec.weight, when that last changed noticeably: what the policy's shedder
    learnt, or the weight that is fixed. Absent where the shedder has no target weights."""
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    """The part of the cluster's load, 0-1, that it was found to be good for; absent where its weight is fixed."""
    last_seen: Timestamp | None = None
    """When it was last ready; set when it stops being so."""
    policy: Annotated[str, Field(max_length=253)] = ""
    """The BalancingPolicy that looks after it; the last one that did when its pod is gone."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation this status speaks of."""
    conditions: Conditions = Field(default_factory=list)
    """`Drained`, of a broker that is closed or whose node is cordoned: True once it owns nothing."""
