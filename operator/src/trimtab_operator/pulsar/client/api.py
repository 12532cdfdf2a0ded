"""`Admin`: the calls of Pulsar's admin REST that Trimtab makes, each one method, none of which tries twice.

A broker is known by its id, ``host:webPort``. Calls about one broker are made to that broker; all others to the base
URL, from where Pulsar redirects (307) to whom it concerns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trimtab_operator.pulsar.load_manager import LoadManager
from trimtab_pipeline.source import Credentials


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
