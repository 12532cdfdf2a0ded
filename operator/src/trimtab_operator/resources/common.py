"""What all resources share: group and version, the base model, conditions, and field types users write by hand."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from trimtab_strategies.described import Described

GROUP = "trimtab.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_DURATION = r"^([0-9]+(s|m|h))+$"


class Resource(Described):
    """Base of every part of a custom resource: camelCase on the wire, unknown keys refused, values immutable.

    A field's docstring becomes its description in the CRD, which is what ``kubectl explain`` shows.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
    )


class Status(Resource):
    """Base of what the operator writes and reads back: keys of a newer version are tolerated."""

    model_config = ConfigDict(extra="ignore")


def seconds(text: str) -> float:
    """Length of a duration such as ``90s``, ``5m`` or ``1h30m``, in seconds."""
    if not re.fullmatch(_DURATION, text):
        raise ValueError(f"duration {text!r} must look like 90s, 5m or 1h30m")
    return float(sum(int(n) * _SECONDS[unit] for n, unit in re.findall(r"([0-9]+)([smh])", text)))


def _positive(text: str) -> str:
    if seconds(text) <= 0:
        raise ValueError(f"duration {text!r} must be longer than 0s")
    return text


Duration = Annotated[str, Field(pattern=_DURATION, max_length=16), AfterValidator(_positive)]
"""A length of time as people write it in Kubernetes: ``90s``, ``5m``, ``1h30m``."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", min_length=1, max_length=253)]
"""The name of a Kubernetes object."""

Timestamp = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
"""A moment in RFC 3339, UTC, e.g. ``2026-01-31T12:00:00Z``."""


class Condition(Status):
    """One aspect of an object's state, as every Kubernetes tool reads it."""

    type: Annotated[str, Field(max_length=316)]
    """Aspect, in CamelCase. `Ready` sums up the others."""
    status: Literal["True", "False", "Unknown"]
    """Whether the aspect holds."""
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """One CamelCase word for why."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """What a person should know, and do."""
    last_transition_time: Timestamp
    """When `status` last changed."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of the object that this condition speaks of."""


Conditions = Annotated[
    list[Condition],
    Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]
"""Conditions keyed by type, so that several writers can each own theirs."""


def cel(*rules: tuple[str, str] | tuple[str, str, str]) -> dict[str, Any]:
    """``x-kubernetes-validations`` for a model's ``json_schema_extra``.

    Each rule is (CEL rule, message) or (CEL rule, message, CEL expression of a message that quotes the values).
    """
    words = ("rule", "message", "messageExpression")
    return {"x-kubernetes-validations": [dict(zip(words, rule, strict=False)) for rule in rules]}
