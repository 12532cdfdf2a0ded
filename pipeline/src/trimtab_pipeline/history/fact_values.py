"""Values in a history that an operator wrote as JSON, or that an imported file says so: checked when they are read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import TypeAdapter

from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.prometheus.response_limits import json_of
from trimtab_strategies.model import BrokerTraits, NamespacePolicy

_TRAITS, _POLICY = TypeAdapter(BrokerTraits), TypeAdapter(NamespacePolicy)


@contextmanager
def foreign_values() -> Iterator[None]:
    """Raise `ForeignFileError` for any error that values cause which no operator writes."""
    try:
        yield
    except ForeignFileError:
        raise
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise ForeignFileError(f"it holds values that no operator writes ({error!r:.200})") from error


def fact_value(text: str) -> dict[str, Any]:
    """The JSON object of a fact or a policy. Raises `ForeignFileError`."""
    with foreign_values():
        found = json_of(text)
        if not isinstance(found, dict):
            raise TypeError(f"{text[:100]!r} is no JSON object")
        return found


def traits_of(value: Mapping[str, Any]) -> BrokerTraits:
    """The traits of a broker. Raises `ValueError`."""
    unknown = {key: math.nan for key in ("weight", "started") if value.get(key) is None}
    return _TRAITS.validate_python({**value, **unknown})


def policy_of(value: Mapping[str, Any]) -> NamespacePolicy:
    """The rules of a namespace. Raises `ValueError`, and `TypeError` for an isolation that is no object."""
    isolation = value.get("isolation")
    found = None if isolation is None else {"primary": (), **isolation}
    return _POLICY.validate_python({**value, "isolation": found})
