"""`TopicNamespace`: a Pulsar namespace (``tenant/name``), cut into bundles when it is created."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from trimtab_operator.resources.common import Conditions, Resource, Status, cel

PulsarName = Annotated[str, Field(pattern=r"^[-=:.A-Za-z0-9_]+$", min_length=1, max_length=120)]
"""A tenant or namespace as Pulsar allows it."""


BrokerPattern = Annotated[str, Field(min_length=1, max_length=253)]
"""A regular expression."""

_NOBODY = "isolation names no broker: add a pattern to primary or secondary, or leave isolation out"
_BOTH = "a pattern is primary and secondary: leave it in one of the two lists"
_IN_BOTH = "self.primary.filter(p, p in self.secondary)"


class IsolationSpec(Resource):
    """Which brokers may have the namespace's bundles. Namespaces without isolation don't get its primary brokers."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self.primary.size() + self.secondary.size() > 0", _NOBODY),
            (f"{_IN_BOTH}.size() == 0", _BOTH, f"'pattern ' + {_IN_BOTH}[0] + '{_BOTH.removeprefix('a pattern')}'"),
        ),
    )

    primary: Annotated[tuple[BrokerPattern, ...], Field(max_length=64)] = ()
    """The brokers that may have its bundles: regular expressions, each for the whole name of a Broker object, which is
    the name of its pod (Pulsar: the host)."""
    secondary: Annotated[tuple[BrokerPattern, ...], Field(max_length=64)] = ()
    """The brokers that may have them as well, while fewer than minAvailable primary ones can: such expressions, too."""
    min_available: Annotated[int, Field(ge=0, le=1000)] = 1
    """How many primary brokers must be able to have them, or the secondary ones may as well; 0: those never may
    (Pulsar: min_limit)."""


class TopicNamespaceSpec(Resource):
    """What is wished of a topic namespace. Its bundles are cut once, and later only split; the rest may change."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self.tenant == oldSelf.tenant && self.name == oldSelf.name", "tenant and name are immutable"),
            ("self.bundles == oldSelf.bundles", "bundles is immutable: split bundles instead"),
        ),
    )

    tenant: PulsarName
    """Tenant that owns the namespace. Immutable."""
    name: PulsarName
    """Namespace within the tenant. Immutable."""
    bundles: Annotated[int, Field(ge=1, le=1024)] = 4
    """How many equal bundles to begin with (Pulsar: defaultNumberOfNamespaceBundles). Immutable."""
    isolation: IsolationSpec | None = None
    """Which brokers may have its bundles; without it, all that are primary for no other namespace. Bundles that are
    elsewhere when it changes stay until they are moved."""
    anti_affinity_group: Annotated[str, Field(max_length=253)] = ""
    """Namespaces of one group are kept on different brokers as far as possible; empty: it is in no group."""
    balanced: bool = True
    """Whether its bundles may be moved to balance load; if not, they get an owner only when they have none."""


class TopicNamespaceStatus(Status):
    """What is observed of a topic namespace."""

    bundles: Annotated[int, Field(ge=0)] = 0
    """How many Bundle objects it has now."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation this status speaks of."""
    conditions: Conditions = Field(default_factory=list)
    """`Ready`: all of its bundles exist. `Valid`, once there was a problem: its isolation can be kept to."""
