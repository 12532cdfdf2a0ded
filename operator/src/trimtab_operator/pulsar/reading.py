"""Answers of Pulsar's admin REST as values. What is not as it should be raises `PulsarUnavailableError`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from trimtab_operator.pulsar.admin import TopicLoad
from trimtab_operator.pulsar.errors import PulsarUnavailableError

SYSTEM = ("pulsar", "sla-monitor")
"""Tenants whose bundles are the cluster's own business: they stay with one broker, or are balanced by nobody."""

_BUNDLE = re.compile(r"[^/]+/[^/]+/0x[0-9a-f]{8}_0x[0-9a-f]{8}")


def names(found: Any) -> tuple[str, ...]:
    """A list of texts, in order."""
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise PulsarUnavailableError(f"a list of names was expected, not {found!r:.100}")
    return tuple(sorted(found))


def mapping(found: Any) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(found, dict):
        raise PulsarUnavailableError(f"a JSON object was expected, not {found!r:.100}")
    return found


def texts(found: Any) -> Mapping[str, str]:
    """A JSON object of texts; what is none is written as one."""
    return {name: value if isinstance(value, str) else str(value) for name, value in mapping(found).items()}


def boundaries(found: Any) -> tuple[int, ...]:
    """The edges of bundles, of the answer about a namespace's bundles."""
    try:
        edges = tuple(int(edge, 16) for edge in found["boundaries"])
    except (KeyError, TypeError, ValueError):
        raise PulsarUnavailableError(f"boundaries of bundles were expected, not {found!r:.100}") from None
    if len(edges) < 2 or list(edges) != sorted(set(edges)):  # noqa: PLR2004  one bundle has two edges
        raise PulsarUnavailableError(f"boundaries of bundles must ascend: {found!r:.100}")
    return edges


def owned(found: Any) -> frozenset[str]:
    """Bundles that a broker serves, without the system's, and without those it is letting go of."""
    return frozenset(
        bundle
        for bundle, held in mapping(found).items()
        if _BUNDLE.fullmatch(bundle) and not of_system(bundle) and mapping(held).get("is_active", True)
    )


def reported(found: Any) -> frozenset[str]:
    """Bundles in a broker's load report, without the system's."""
    names = mapping(found).get("bundles") or ()
    return frozenset(name for name in map(str, names) if _BUNDLE.fullmatch(name) and not of_system(name))


def of_system(name: str) -> bool:
    """Whether a tenant, namespace or bundle is the cluster's own."""
    return name.partition("/")[0] in SYSTEM


def broker_id(found: Any) -> str:
    """Whom a lookup names, by the address of its web service."""
    answer = mapping(found)
    url = answer.get("httpUrl") or answer.get("httpUrlTls") or ""
    if not (netloc := urlsplit(str(url)).netloc):
        raise PulsarUnavailableError(f"an address of a broker was expected, not {found!r:.100}")
    return netloc


def https_url(found: Any) -> str:
    """Base URL by https of the broker that a lookup names; empty for none."""
    url = urlsplit(str(mapping(found).get("httpUrlTls") or ""))
    return f"https://{url.netloc}" if url.scheme == "https" and url.netloc else ""


def topic_loads(found: Any) -> Iterator[TopicLoad]:
    """Topics of a broker's statistics, ``{namespace: {range: {persistence: {topic: figures}}}}``."""
    for namespace, ranges in mapping(found).items():
        if of_system(namespace):
            continue
        for range_, kinds in mapping(ranges).items():
            for topics in mapping(kinds).values():
                for name, figures in mapping(topics).items():
                    yield _topic_load(name, f"{namespace}/{range_}", mapping(figures))


def _topic_load(name: str, bundle: str, figures: Mapping[str, Any]) -> TopicLoad:
    subscriptions = mapping(figures.get("subscriptions") or {}).values()
    try:
        return TopicLoad(
            name=name,
            bundle=bundle,
            rate_in=float(figures.get("msgRateIn") or 0),
            rate_out=float(figures.get("msgRateOut") or 0),
            throughput_in=float(figures.get("msgThroughputIn") or 0),
            throughput_out=float(figures.get("msgThroughputOut") or 0),
            producers=len(figures.get("publishers") or ()),
            consumers=sum(len(subscription.get("consumers") or ()) for subscription in subscriptions),
        )
    except (TypeError, ValueError, AttributeError):
        raise PulsarUnavailableError(f"statistics of {name} can't be read") from None
