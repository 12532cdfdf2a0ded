"""Base of every strategy's parameters: the one place from which validation, the CRD's schema and the docs are made."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from trimtab_strategies.described import Described, descriptions
from trimtab_strategies.usage import Weight, Weights


class Compatibility(StrEnum):
    """Whether a strategy keeps the known defects of the original, or does what was meant."""

    JAVA = "java"
    CORRECTED = "corrected"


class Defect(NamedTuple):
    """A known defect of an original: what that does, and what is done instead with `Compatibility.CORRECTED`."""

    original: str
    corrected: str


class StrategyParams(Described):
    """Parameters of one strategy: camelCase on the wire, unknown keys refused, immutable.

    A field's docstring says what it does and its unit, and ends with the key that Pulsar has for it.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
    )


class WeightedParams(StrategyParams):
    """Parameters of a strategy that compares brokers by the weighted maximum of their resources."""

    cpu_weight: Weight = 1
    """Factor on CPU percent.
    Pulsar: loadBalancerCPUResourceWeight"""
    direct_memory_weight: Weight = 0
    """Factor on direct memory percent.
    Pulsar: loadBalancerDirectMemoryResourceWeight"""
    network_in_weight: Weight = 1
    """Factor on percent of the network received.
    Pulsar: loadBalancerBandwidthInResourceWeight"""
    network_out_weight: Weight = 1
    """Factor on percent of the network sent.
    Pulsar: loadBalancerBandwidthOutResourceWeight"""

    @property
    def weights(self) -> Weights:
        """The weights of all resources."""
        return Weights(self.cpu_weight, 0.0, self.direct_memory_weight, self.network_in_weight, self.network_out_weight)


def pulsar_keys(params: type[StrategyParams]) -> dict[str, str]:
    """Pulsar's configuration key of each parameter that has one, to the field's name."""
    found = {}
    for name, text in descriptions(params).items():
        _, marker, key = text.rpartition("Pulsar: ")
        if marker:
            found[key.strip()] = name
    return found
