"""What all resources share: group and version, base model, conditions, durations, and windows of time."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from trimtab_strategies.params import DescribedModel

GROUP = "trimtab.dev"

VERSION = "v1alpha1"

API_VERSION = f"{GROUP}/{VERSION}"


_SECONDS = {"s": 1, "m": 60, "h": 3600}

_DURATION = r"^([0-9]+(s|m|h))+$"


class Resource(DescribedModel):
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


NameOrEmpty = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]
"""The name of a Kubernetes object, or empty for none."""


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


LONGEST = 168
"""Hours that a window may last: a week."""


_TOO_LONG = f"a window lasts at most {LONGEST}h"


class Day(StrEnum):
    """A day of the week, in the order of `datetime.weekday`."""

    MON = "Mon"
    TUE = "Tue"
    WED = "Wed"
    THU = "Thu"
    FRI = "Fri"
    SAT = "Sat"
    SUN = "Sun"


class WindowKind(StrEnum):
    """What holds within the window."""

    ALLOW = "Allow"
    DENY = "Deny"


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"timeZone {name!r} is not known: write one of the IANA names, such as Europe/Berlin"
        ) from error
    return name


def _at_most_a_week(text: str) -> str:
    if seconds(text) > LONGEST * 3600:
        raise ValueError(_TOO_LONG)
    return text


class Window(Resource):
    """A time that comes again each day, or on some days of the week."""

    kind: WindowKind = WindowKind.ALLOW
    """`Allow`: the policy acts within this window (or another such one) alone. `Deny`: it does not act within it."""
    days: Annotated[tuple[Day, ...], Field(max_length=7, json_schema_extra={"x-kubernetes-list-type": "set"})] = ()
    """Days on which it begins: Mon, Tue, Wed, Thu, Fri, Sat, Sun; left out, every day."""
    start: Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$", max_length=5)]
    """Time of day at which it begins, such as 22:00, by the clocks of `timeZone`. On the night when clocks go forward
    a time that does not exist is an hour later; when they go back, one that comes twice is the first one."""
    duration: Annotated[
        Duration,
        Field(json_schema_extra=cel((f"duration(self) <= duration('{LONGEST}h')", _TOO_LONG))),
        AfterValidator(_at_most_a_week),
    ]
    """How long it lasts, a week at most."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_known_zone)] = "UTC"
    """IANA name of a time zone, such as Europe/Berlin."""
