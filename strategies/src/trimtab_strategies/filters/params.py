"""Parameters of the selection of candidates."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from trimtab_strategies.params import WeightedParams

Percent = Annotated[float, Field(gt=0, le=100)]


class Manager(StrEnum):
    """The load manager of Pulsar whose pipeline is run."""

    MODULAR = "modular"
    EXTENSIBLE = "extensible"


class SelectionParams(WeightedParams):
    """Parameters of both pipelines; the weights belong to the overload test."""

    max_topics: Annotated[int, Field(ge=1)] = 50000
    """Topics that a broker may have.
    Pulsar: loadBalancerBrokerMaxTopics"""
    distribute_evenly: bool = True
    """Keep only the brokers with the fewest bundles of the namespace; modular only. ``pulsar/system`` always does this.
    Pulsar: loadBalancerDistributeBundlesEvenlyEnabled"""
    prefer_later_versions: bool = False
    """Keep only the brokers that run the latest version found among the candidates.
    Pulsar: preferLaterVersions"""
    overload_threshold: Percent = 85
    """Percent of weighted usage above which a chosen broker is overloaded and the choice is repeated (modular only).
    Above it a broker does not count as one with room in a namespace's zone.
    Pulsar: loadBalancerBrokerOverloadedThresholdPercentage"""
    failure_domains: bool = False
    """Keep the namespaces of an anti-affinity group apart by failure domain first, then by broker.
    Pulsar: failureDomainsEnabled"""
    load_manager: Annotated[str, Field(max_length=300)] = ""
    """Class name that a broker's load manager must have; empty: not compared.
    Pulsar: loadManagerClassName"""
    excluded_namespaces: Annotated[tuple[str, ...], Field(max_length=1000)] = ()
    """Namespaces whose bundles are placed in turn rather than by load; modular only.
    Pulsar: loadBalancerSheddingExcludedNamespaces"""
