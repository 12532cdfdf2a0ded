"""`TopicNamespace`: a Pulsar namespace (``tenant/name``), cut into bundles when it is created."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from trimtab_operator.resources.common import Conditions, Resource, Status, cel

PulsarName = Annotated[str, Field(pattern=r"^[-=:.A-Za-z0-9_]+$", min_length=1, max_length=120)]
"""A tenant or namespace as Pulsar allows it."""


class TopicNamespaceSpec(Resource):
    """What is wished of a topic namespace. Immutable: bundles are cut once, and later only split."""

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


class TopicNamespaceStatus(Status):
    """What is observed of a topic namespace."""

    bundles: Annotated[int, Field(ge=0)] = 0
    """How many Bundle objects it has now."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation this status speaks of."""
    conditions: Conditions = Field(default_factory=list)
    """`Ready`: all of its bundles exist."""
