"""`BundleSplit`: a request to divide one bundle at given positions."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from trimtab_operator.resources.bundle import Hash32
from trimtab_operator.resources.common import Conditions, Name, Resource, Status, cel


class BundleSplitSpec(Resource):
    """Which bundle, and where. Immutable as a whole: create another BundleSplit instead."""

    model_config = ConfigDict(
        json_schema_extra=cel(("self == oldSelf", "a BundleSplit is immutable: create another one")),
    )

    bundle: Name
    """Name of the Bundle to divide."""
    boundaries: Annotated[
        list[Hash32],
        Field(
            min_length=1,
            max_length=31,
            json_schema_extra={
                "x-kubernetes-list-type": "set",
                **cel(("self.isSorted()", "boundaries must ascend: write the lowest position first")),
            },
        ),
    ]
    """Positions strictly inside the bundle's range, ascending; n positions make n + 1 children."""


class BundleSplitStatus(Status):
    """What became of the request."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation this status speaks of."""
    conditions: Conditions = Field(default_factory=list)
    """`Accepted`: whether this version of Trimtab carries the split out."""
