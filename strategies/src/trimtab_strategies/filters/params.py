"""Parameters of the selection of candidates."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from trimtab_strategies.params import WeightedParams

Percent = Annotated[float, Field(gt=0, le=100)]


class Manager(StrEnum):
    """Which of Pulsar's load managers sets the order of the filters."""

    MODULAR = "modular"
    EXTENSIBLE = "extensible"


class SelectionParams(WeightedParams):
    """Parameters of both selections, `Modular` and `Extensible`. The weights apply to the overload test."""

    max_topics: Annotated[int, Field(ge=1)] = 50000
    """Topics that a broker may have.
    Pulsar: loadBalancerBrokerMaxTopics"""
    distribute_evenly: bool = True
    """Keep only the brokers with the fewest bundles of the namespace. Only `Modular` does this. For bundles of
    `pulsar/system`, `Modular` does it even if this is false.
    Pulsar: loadBalancerDistributeBundlesEvenlyEnabled"""
    prefer_later_versions: bool = False
    """Keep only the brokers that run the latest version found among the candidates.
    Pulsar: preferLaterVersions"""
    overload_threshold: Percent = 85
    """Percent of weighted usage above which a broker is overloaded. If the chosen broker is overloaded, `Modular`
    chooses again. A namespace's `zone` does not prefer overloaded brokers.
    Pulsar: loadBalancerBrokerOverloadedThresholdPercentage"""
    failure_domains: bool = False
    """Keep the namespaces of an anti-affinity group apart by failure domain first, then by broker.
    Pulsar: failureDomainsEnabled"""
    load_manager: Annotated[str, Field(max_length=300)] = ""
    """Class name that a broker's load manager must have; empty: not compared.
    Pulsar: loadManagerClassName"""
    excluded_namespaces: Annotated[tuple[str, ...], Field(max_length=1000)] = ()
    """Namespaces whose bundles go to one broker after the other, regardless of load. Only `Modular` does this.
    Pulsar: loadBalancerSheddingExcludedNamespaces"""
