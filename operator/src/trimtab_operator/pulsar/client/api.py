"""Readers of the answers of Pulsar's admin REST API, for `Admin`.

A broker's id is ``host:webPort``. A malformed answer raises `PulsarUnavailableError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import SplitResult, urlsplit

from trimtab_operator.pulsar.client.errors import PulsarUnavailableError
from trimtab_strategies.hash_ring import LAST_HASH


class LoadManager(StrEnum):
    """The load manager of a cluster. `OTHER`: one whose behaviour was not measured."""

    MODULAR = "ModularLoadManagerImpl"
    EXTENSIBLE = "ExtensibleLoadManagerImpl"
    OTHER = "Other"


def load_manager(runtime: Mapping[str, str]) -> LoadManager:
    """The load manager that the configuration `runtime` names."""
    name = runtime.get("loadManagerClassName", "").rpartition(".")[2]
    return next((found for found in LoadManager if found.value == name), LoadManager.OTHER)


SYSTEM_TENANTS = ("pulsar", "sla-monitor")
"""Tenants of the cluster itself: heartbeats, system topics, the service-level monitor. Never balanced."""


_BUNDLE = re.compile(r"[^/]+/[^/]+/0x[0-9a-f]{8}_0x[0-9a-f]{8}")


def names(found: Any) -> tuple[str, ...]:
    """Read a JSON list of texts, sorted."""
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise PulsarUnavailableError(f"expected a list of names, got {found!r:.100}")
    return tuple(sorted(found))


def mapping(found: Any) -> Mapping[str, Any]:
    """Read a JSON object."""
    if not isinstance(found, dict):
        raise PulsarUnavailableError(f"expected a JSON object, got {found!r:.100}")
    return found


def texts(found: Any) -> Mapping[str, str]:
    """Read a JSON object of texts. Other values are converted to text."""
    return {name: value if isinstance(value, str) else str(value) for name, value in mapping(found).items()}


def boundaries(found: Any) -> tuple[int, ...]:
    """Read the edges of a namespace's bundles."""
    try:
        edges = tuple(int(edge, 16) for edge in found["boundaries"])
    except (KeyError, TypeError, ValueError):
        raise PulsarUnavailableError(f"expected boundaries of bundles, got {found!r:.100}") from None
    if len(edges) < 2 or list(edges) != sorted(set(edges)) or not 0 <= edges[0] < edges[-1] <= LAST_HASH:  # noqa: PLR2004  one bundle has two edges
        raise PulsarUnavailableError(f"boundaries of bundles must ascend from 0 to 0xffffffff: {found!r:.100}")
    return edges


def owned(found: Any) -> frozenset[str]:
    """Read the bundles that a broker serves, except the system's and those that it is releasing."""
    return frozenset(
        bundle
        for bundle, state in mapping(found).items()
        if _BUNDLE.fullmatch(bundle) and not is_system(bundle) and mapping(state).get("is_active", True)
    )


def reported(found: Any) -> frozenset[str]:
    """Read the bundles of a broker's load report, without the system's."""
    found = names(mapping(found).get("bundles") or [])
    return frozenset(name for name in found if _BUNDLE.fullmatch(name) and not is_system(name))


def is_system(name: str) -> bool:
    """Whether a tenant, namespace or bundle (by name) belongs to the cluster itself."""
    return name.partition("/")[0] in SYSTEM_TENANTS


def broker_id(found: Any) -> str:
    """Read the broker id from the answer to a lookup."""
    answer = mapping(found)
    if not (netloc := _split(answer.get("httpUrl") or answer.get("httpUrlTls")).netloc):
        raise PulsarUnavailableError(f"expected the address of a broker, got {found!r:.100}")
    return netloc


def leader_id(found: Any) -> str:
    """Read the broker id from the answer about the leader; older brokers give only its URL."""
    answer = mapping(found)
    return str(answer.get("brokerId") or _split(answer.get("serviceUrl")).netloc)


def _split(url: Any) -> SplitResult:
    """The parts of a URL in an answer; all empty if it has none."""
    try:
        return urlsplit(str(url or ""))
    except ValueError:
        raise PulsarUnavailableError(f"expected a URL, got {url!r:.100}") from None


def https_url(found: Any) -> str:
    """Read the https base URL from the answer to a lookup; empty if it has none."""
    url = _split(mapping(found).get("httpUrlTls"))
    return f"https://{url.netloc}" if url.scheme == "https" and url.netloc else ""


def message_rate(found: Any) -> float:
    """Read the msg/s, in and out, of a broker's topics, without the system's own.

    The answer is ``{namespace: {range: {persistence: {topic: figures}}}}``.
    """
    return sum(
        _rate(name, figures, "msgRateIn") + _rate(name, figures, "msgRateOut")
        for namespace, ranges in mapping(found).items()
        if not is_system(namespace)
        for kinds in mapping(ranges).values()
        for topics in mapping(kinds).values()
        for name, figures in mapping(topics).items()
    )


def _rate(topic: str, figures: Any, name: str) -> float:
    """A rate of a topic. NaN, infinity and negative values count as 0, as with topics in Prometheus."""
    try:
        found = float(mapping(figures).get(name) or 0)
    except (TypeError, ValueError, OverflowError):
        raise PulsarUnavailableError(f"statistics of {topic} can't be read") from None
    return found if 0 <= found < math.inf else 0.0


def positions(found: Any) -> Mapping[str, int]:
    """Read the hash of each loaded topic."""
    told = mapping(mapping(found).get("topicHashPositions") or {})
    try:
        return {topic: int(position) for topic, position in told.items()}
    except (TypeError, ValueError, OverflowError):
        raise PulsarUnavailableError(f"expected hashes of topics, got {told!r:.100}") from None


def isolation_policies(found: Any) -> Mapping[str, Mapping[str, Any]]:
    """Read the isolation policies by name: lists of patterns, and the parameters of the fail-over."""
    for policy in mapping(found).values():
        for field in ("namespaces", "primary", "secondary"):
            names(mapping(policy).get(field) or [])
        mapping(mapping(policy.get("auto_failover_policy") or {}).get("parameters") or {})
    policies: Mapping[str, Mapping[str, Any]] = found
    return policies
