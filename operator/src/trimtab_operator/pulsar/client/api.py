"""`Admin`: the calls of Pulsar's admin REST API that Trimtab makes, and their answers as values.

A broker is known by its id, ``host:webPort``. Calls about one broker go to that broker. All others go to the base URL,
from where Pulsar redirects (307). No call is retried here. A malformed answer raises `PulsarUnavailableError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import urlsplit

from trimtab_operator.pulsar.client.errors import PulsarUnavailableError
from trimtab_pipeline.api import Credentials


class LoadManager(StrEnum):
    """`OTHER`: neither of those whose behaviour was measured."""

    MODULAR = "ModularLoadManagerImpl"
    EXTENSIBLE = "ExtensibleLoadManagerImpl"
    OTHER = "Other"


def load_manager(runtime: Mapping[str, str]) -> LoadManager:
    """The one that runs with the configuration `runtime`."""
    name = runtime.get("loadManagerClassName", "").rpartition(".")[2]
    return next((found for found in LoadManager if found.value == name), LoadManager.OTHER)


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


@dataclass(frozen=True, slots=True)
class TopicLoad:
    """What a broker says of one topic. Rates in msg/s and bytes/s; `name` as ``persistent://tenant/ns/topic``."""

    name: str
    bundle: str
    rate_in: float
    rate_out: float
    throughput_in: float
    throughput_out: float
    producers: int
    consumers: int


class Admin(Protocol):
    """See the module. All methods raise `PulsarError`; bundles are spelt ``tenant/namespace/0x.._0x..``."""

    def at_once(self) -> Admin:
        """The same, whose looks do not wait for the budget: for a move or a split that is under way."""

    async def load_manager(self) -> LoadManager:
        """Which load manager the cluster runs, as the broker says that answers."""

    async def clusters(self) -> tuple[str, ...]:
        """Names of the clusters that this one knows."""

    async def brokers(self) -> frozenset[str]:
        """Ids of the active brokers."""

    async def leader(self) -> str:
        """Id of the broker that leads."""

    async def tenants(self) -> tuple[str, ...]:
        """Names of the tenants; the system's own (``pulsar``) among them."""

    async def namespaces(self, tenant: str) -> tuple[str, ...]:
        """Its namespaces, as ``tenant/name``. `UnknownError`."""

    async def boundaries(self, namespace: str) -> tuple[int, ...]:
        """The n + 1 edges of its n bundles, ascending from 0 to 0xffffffff. `UnknownError`."""

    async def policies(self, namespace: str) -> Mapping[str, Any]:
        """Its policies as Pulsar has them (``anti_affinity_group``, ``bundles``, ...). `UnknownError`."""

    async def isolation(self, cluster: str) -> Mapping[str, Mapping[str, Any]]:
        """The cluster's namespace isolation policies by name (regular expressions of namespaces and brokers)."""

    async def owned(self, broker: str) -> frozenset[str]:
        """Bundles that `broker` serves, without the system's own. `UnknownError`.

        **Not for the modular load manager**: a broker that takes two bundles while it answers this may wait for itself
        for ever (seen with 4.0.8), and serves nothing any more until it is restarted. Ask for `owner` and `reported`.
        """

    async def owner(self, bundle: str, broker: str) -> str:
        """Id of the broker that serves `bundle`, empty for nobody, with the modular load manager: `broker` is asked.

        Each of them knows. Free of side effects. `StaleBundleError`, `UnknownError`.
        """

    async def reported(self, broker: str) -> frozenset[str]:
        """Bundles of whose topics `broker` has statistics, with the modular load manager: a hint, a minute old or so.

        Those that it serves and nobody uses are not among them.
        """

    async def create_tenant(self, tenant: str, clusters: Sequence[str]) -> None:
        """Create a tenant that may use `clusters`. `ExistsError`."""

    async def create_namespace(self, namespace: str, bundles: int) -> None:
        """Create a namespace cut into so many equal bundles. `ExistsError`, `UnknownError` (no such tenant)."""

    async def set_anti_affinity(self, namespace: str, group: str) -> None:
        """Put the namespace into an anti-affinity group, or out of any (empty)."""

    async def unload(self, bundle: str, destination: str = "") -> None:
        """Have its owner let go; `destination`: id of the broker that is to take it.

        Done means *released*, not *moved*. `StaleBundleError`, `InactiveDestinationError`, `SameBrokerError`.
        """

    async def split(self, bundle: str, positions: Sequence[int], *, unload: bool = False) -> None:
        """Divide at `positions`. Done does not mean that it was divided: read the boundaries again.

        `StaleBundleError`, `SplitRefusedError`.
        """

    async def topic_positions(self, bundle: str) -> Mapping[str, int]:
        """Hash of each loaded topic of the bundle, by topic."""

    async def topic_stats(self, topic: str) -> Mapping[str, Any]:
        """Statistics of one topic as Pulsar has them (``msgRateIn``, ``msgInCounter``, ``publishers``, ...)."""

    async def topic_loads(self, broker: str) -> tuple[TopicLoad, ...]:
        """What `broker` says of the topics it serves, without those of the system."""

    async def origin(self, broker: str) -> str:
        """Base URL of the admin REST of `broker`, if it may be asked."""

    async def credentials(self) -> Credentials:
        """What proves at this moment who asks; never to be shown."""

    async def lookup(self, topic: str) -> str:
        """Id of the broker that serves `topic`. **Gives its bundle an owner if it has none.**"""

    async def runtime(self, broker: str) -> Mapping[str, str]:
        """The configuration that `broker` runs with, all of it, as text."""

    async def overrides(self) -> Mapping[str, str]:
        """Dynamic configuration that is set for the whole cluster."""

    async def override(self, name: str, value: str) -> None:
        """Set a dynamic value. **Pulsar does not check `value`.**"""

    async def drop_override(self, name: str) -> None:
        """Drop a dynamic value: brokers run by their files again."""
