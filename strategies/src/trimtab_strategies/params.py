"""Base of every strategy's parameters: the one place from which validation, the CRD's schema and the docs are made."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class StrategyParams(BaseModel):
    """Parameters of one strategy: camelCase on the wire, unknown keys refused, immutable.

    A field's docstring says what it does and its unit, and ends with the key that Pulsar has for it.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


def pulsar_keys(params: type[StrategyParams]) -> dict[str, str]:
    """Pulsar's configuration key of each parameter that has one, to the field's name."""
    found = {}
    for name, info in params.model_fields.items():
        _, marker, key = (info.description or "").rpartition("Pulsar: ")
        if marker:
            found[key.strip()] = name
    return found
