"""Shared parts of all resources: group and version, base model, conditions, durations, time windows."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from trimtab_strategies.params import Duration, YamlModel, seconds

GROUP = "trimtab.dev"

VERSION = "v1alpha1"

API_VERSION = f"{GROUP}/{VERSION}"

FINALIZER = f"{GROUP}/finalizer"
"""Holds a deleted BalancingPolicy until Pulsar's own balancer is restored. Earlier releases gave it to every policy."""


class Resource(YamlModel):
    """Base of every part of a custom resource: camelCase on the wire, unknown keys refused, values immutable.

    A field's docstring becomes its description in the CRD, which is what ``kubectl explain`` shows.
    """

    model_config = ConfigDict(allow_inf_nan=True)


def problems_of(error: ValidationError) -> str:
    """What is wrong with a spec: each field, and its value."""
    texts = {"extra_forbidden": "this version has no such field"}
    return "; ".join(
        f"spec.{'.'.join(map(str, e['loc']))}: {texts.get(e['type'], e['msg'])}{_given(e)}" for e in error.errors()
    )


def _given(problem: ErrorDetails) -> str:
    """The refused value; empty for the URL parameters of a query, which no text shows."""
    return "" if "parameters" in problem["loc"] else f" (got {problem['input']!r:.80})"


class Status(Resource):
    """Base of status models. Unknown keys, such as those of a newer version, are ignored."""

    model_config = ConfigDict(extra="ignore")


Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", min_length=1, max_length=253)]
"""The name of a Kubernetes object."""


NameOrEmpty = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]
"""The name of a Kubernetes object, or empty for none."""


Timestamp = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
"""A time in RFC 3339, UTC, such as ``2026-01-31T12:00:00Z``."""


class Condition(Status):
    """One aspect of an object's state, in the standard form of Kubernetes."""

    type: Annotated[str, Field(max_length=316)]
    """Name of the aspect, in CamelCase. `Ready` summarizes the others."""
    status: Literal["True", "False", "Unknown"]
    """Whether the aspect holds: True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """Reason of the status, one word in CamelCase."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Details for users, with a remedy."""
    last_transition_time: Timestamp
    """When `status` last changed."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the spec that this condition describes."""


Conditions = Annotated[
    list[Condition],
    Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]
"""Conditions, keyed by type. So several writers can each own some of them."""


def cel(*rules: tuple[str, str] | tuple[str, str, str]) -> dict[str, Any]:
    """``x-kubernetes-validations`` for a model's ``json_schema_extra``.

    Each rule is (CEL rule, message) or (CEL rule, message, CEL expression for a message with the values).
    """
    words = ("rule", "message", "messageExpression")
    return {"x-kubernetes-validations": [dict(zip(words, rule, strict=False)) for rule in rules]}


def _distinct(items: Any) -> Any:
    for k, item in enumerate(items):
        if item in items[:k]:
            raise ValueError(f'holds "{item}" twice: leave one out')
    return items


DISTINCT = AfterValidator(_distinct)
"""Refuses a list with an item that occurs twice, as the API server does for `SET`."""

SET: dict[str, Any] = {"x-kubernetes-list-type": "set"}
"""``json_schema_extra`` of a list that is `DISTINCT`."""


LONGEST = 168
"""Maximum length of a window in hours: one week."""


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
    """Effect of a window."""

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
    """A time window that repeats each day, or on some days of the week."""

    kind: WindowKind = WindowKind.ALLOW
    """`Allow`: the policy acts only within windows of this kind. `Deny`: it does not act within this window."""
    days: Annotated[tuple[Day, ...], Field(max_length=7, json_schema_extra=SET), DISTINCT] = ()
    """Days on which the window begins: Mon, Tue, Wed, Thu, Fri, Sat, Sun. If absent, every day."""
    start: Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$", max_length=5)]
    """Time of day at which the window begins, such as 22:00, in `timeZone`. If clocks go forward and the time does not
    exist that day, the window begins one hour later. If clocks go back and the time occurs twice, it begins at the
    first one."""
    duration: Annotated[
        Duration,
        Field(json_schema_extra=cel((f"duration(self) <= duration('{LONGEST}h')", _TOO_LONG))),
        AfterValidator(_at_most_a_week),
    ]
    """Length of the window, at most 168h (one week)."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_known_zone)] = "UTC"
    """IANA name of a time zone, such as Europe/Berlin."""
