"""`Window`: when a policy may act by itself."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field

from trimtab_operator.resources.common import Duration, Resource, cel, seconds

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
