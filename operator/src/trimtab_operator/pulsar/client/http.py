"""`Admin`: the calls of Pulsar's admin REST API that Trimtab makes.

Calls about one broker go to that broker. All others go to the base URL, from where Pulsar redirects (307). No call is
retried here. The module `api` reads the answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

from trimtab_operator.pulsar.client import api
from trimtab_operator.pulsar.client.api import LoadManager, load_manager
from trimtab_operator.pulsar.client.auth import Bearer, Identity
from trimtab_operator.pulsar.client.errors import PulsarRefusedError, PulsarUnavailableError, UnknownError, UnownedError
from trimtab_operator.pulsar.client.transport import Budget, Guards, Request, Transport, lookup_of
from trimtab_pipeline.api import Credentials

MANAGER_FOR = 60.0
"""Seconds that the answer about the load manager is cached."""

CONNECTIONS = 8
"""Maximum number of connections to one broker."""


@asynccontextmanager
async def connected(
    url: str,
    *,
    timeout: float = 10.0,  # noqa: ASYNC109  applies to each request
    requests_per_second: float = 20.0,
    guards: Guards = Guards(),  # noqa: B008  frozen
    identity: Identity | None = None,
) -> AsyncIterator[Admin]:
    """Open a client for the cluster at the admin URL `url`. Requests to brokers use the scheme of that URL.

    timeout: seconds for one request with its redirects, without requests to a token issuer. `identity` is closed with
    the client. Raises `PulsarRefusedError` if `url` is not allowed.
    """
    identity = identity or Bearer()
    try:
        base = guards.admit(url)
    except ValueError as error:
        raise PulsarRefusedError(str(error)) from None
    connector = aiohttp.TCPConnector(limit=0, limit_per_host=CONNECTIONS, ssl=identity.tls or True)
    jar, made_of = aiohttp.DummyCookieJar(), guards.requests
    session = aiohttp.ClientSession(connector=connector, cookie_jar=jar, request_class=made_of)
    async with session, aclosing(identity):
        yield Admin(Transport(session, base, timeout, Budget(requests_per_second), guards, identity))


@dataclass(frozen=True, slots=True)
class Admin:
    """Pulsar's admin REST API. `connected` creates it. Reads wait for the request budget if `budgeted`.

    All methods raise `PulsarError`. Bundles are named ``tenant/namespace/0x.._0x..``.
    """

    transport: Transport
    budgeted: bool = True
    _origins: dict[str, str] = field(default_factory=dict)
    _cluster: list[str] = field(default_factory=list)
    _manager: list[tuple[float, LoadManager]] = field(default_factory=list)

    def without_budget(self) -> Admin:
        """The same client without the request budget, for moves and splits in progress."""
        return replace(self, budgeted=False)

    async def clusters(self) -> tuple[str, ...]:
        """Names of the clusters that this cluster knows."""
        return api.names(await self._get("clusters", "/admin/v2/clusters"))

    async def brokers(self) -> frozenset[str]:
        """Ids of the active brokers."""
        found = api.names(await self._get("brokers", "/admin/v2/brokers"))
        self.transport.list_brokers(found)
        return frozenset(found)

    async def read_store(self) -> None:
        """Have a broker read its metadata store. Without the store, brokers still answer most reads from their caches.

        No broker has cached a tenant with a new name. Without ZooKeeper, Pulsar 4.0.8 answers such a read with
        500, or not at all. Raises `UnknownError` if the store answers.
        """
        await self._get("store", f"/admin/v2/tenants/trimtab-looks-{time.time_ns()}")

    async def leader(self) -> str:
        """Id of the leader broker."""
        return api.leader_id(await self._get("leader", "/admin/v2/brokers/leaderBroker"))

    async def load_manager(self) -> LoadManager:
        """The load manager that the cluster runs, or ran at most a minute ago."""
        if not self._manager or time.monotonic() - self._manager[-1][0] > MANAGER_FOR:
            found = api.texts(await self._get("runtime", "/admin/v2/brokers/configuration/runtime"))
            self._manager[:] = [(time.monotonic(), load_manager(found))]
        return self._manager[-1][1]

    async def tenants(self) -> tuple[str, ...]:
        """Names of all tenants, with the system's own (``pulsar``)."""
        return api.names(await self._get("tenants", "/admin/v2/tenants"))

    async def namespaces(self, tenant: str) -> tuple[str, ...]:
        """Names of the tenant's namespaces, as ``tenant/name``. Raises `UnknownError`."""
        return api.names(await self._get("namespaces", f"/admin/v2/namespaces/{_part(tenant)}"))

    async def boundaries(self, namespace: str) -> tuple[int, ...]:
        """The n + 1 edges of the namespace's n bundles, ascending from 0 to 0xffffffff. Raises `UnknownError`."""
        return api.boundaries(await self._get("boundaries", f"/admin/v2/namespaces/{_parts(namespace)}/bundles"))

    async def policies(self, namespace: str) -> Mapping[str, Any]:
        """The namespace's policies (``anti_affinity_group``, ``bundles``, ...). Raises `UnknownError`.

        The anti-affinity group takes a second request.
        """
        path = f"/admin/v2/namespaces/{_parts(namespace)}"
        found, group = await asyncio.gather(
            self._get("policies", path), self._get("anti_affinity", f"{path}/antiAffinity")
        )
        return {**api.mapping(found), "anti_affinity_group": group or ""}

    async def isolation(self, cluster: str) -> Mapping[str, Mapping[str, Any]]:
        """The cluster's namespace isolation policies by name (regular expressions of namespaces and brokers)."""
        path = f"/admin/v2/clusters/{_part(cluster)}/namespaceIsolationPolicies"
        try:
            return api.isolation_policies(await self._get("isolation", path) or {})
        except UnknownError as error:
            if "does not exist" in str(error) and "IsolationPolicies" in str(error):
                return {}
            raise

    async def owned(self, broker: str) -> frozenset[str]:
        """Bundles that `broker` serves, without the system's own. Raises `UnknownError`.

        **Not for the modular load manager**: a broker that acquires two bundles while it answers may deadlock (seen
        with 4.0.8), and then serves nothing until it is restarted. With that load manager, use `owner` and `reported`.
        """
        path = f"/admin/v2/brokers/{_part(await self._cluster_name())}/{_part(broker)}/ownedNamespaces"
        known = self._origins.get(broker, "") or (self._direct(broker) if self.transport.lists(broker) else "")
        found, url = await self._ask(Request("owned", "GET", path), at=known)
        # the URL of a Service is not remembered: the Service may choose another broker next time
        if urlsplit(url).netloc != urlsplit(self.transport.base).netloc:
            self._origins[broker] = url.removesuffix(path)
        return api.owned(found)

    async def owner(self, bundle: str, broker: str) -> str:
        """Id of the broker that serves `bundle`, empty for unowned; with the modular load manager only.

        `broker` answers, or redirects to the owner: every broker knows it. No side effects. Raises `StaleBundleError`,
        `UnknownError`.
        """
        request = Request("owner", "GET", f"/admin/v2/namespaces/{_parts(bundle)}/topicHashPositions")
        try:
            origin = await self.origin(broker)
        except UnknownError as error:
            raise PulsarUnavailableError(str(error)) from None  # other brokers know the owner, too
        try:
            target = await self.transport.redirect_target(request, origin, budgeted=self.budgeted)
        except UnownedError:
            return ""
        return self._listed_at(target) if target else broker

    def _listed_at(self, netloc: str) -> str:
        """Id of the broker at ``host:port``, which may be its https port."""
        if self.transport.lists(netloc):
            return netloc
        if known := [broker for broker, origin in self._origins.items() if urlsplit(origin).netloc == netloc]:
            return known[0]
        host = netloc.rpartition(":")[0]
        return next((broker for broker in self.transport.listed if broker.rpartition(":")[0] == host), netloc)

    async def reported(self, broker: str) -> frozenset[str]:
        """Bundles in the load report of `broker`; with the modular load manager only. Up to a minute old.

        The report omits bundles without traffic.
        """
        found = await self._get("reported", "/admin/v2/broker-stats/load-report", at=await self.origin(broker))
        return api.reported(found)

    async def create_tenant(self, tenant: str, clusters: Sequence[str]) -> None:
        """Create a tenant that may use `clusters`. Raises `ExistsError`."""
        body = {"adminRoles": [], "allowedClusters": list(clusters)}
        await self._ask(Request("create_tenant", "PUT", f"/admin/v2/tenants/{_part(tenant)}", body))

    async def create_namespace(self, namespace: str, bundles: int) -> None:
        """Create a namespace with this number of equal bundles. Raises `ExistsError`, `UnknownError` (no tenant)."""
        body = {"bundles": {"numBundles": bundles}}
        await self._ask(Request("create_namespace", "PUT", f"/admin/v2/namespaces/{_parts(namespace)}", body))

    async def set_anti_affinity(self, namespace: str, group: str) -> None:
        """Set the namespace's anti-affinity group; empty removes it."""
        path = f"/admin/v2/namespaces/{_parts(namespace)}/antiAffinity"
        await self._ask(Request("set_anti_affinity", "POST" if group else "DELETE", path, group or None))

    async def unload(self, bundle: str, destination: str = "") -> None:
        """Unload a bundle from its owner. destination: id of the next owner; empty lets Pulsar choose.

        The answer means *released*, not *moved*. Raises `StaleBundleError`, `InactiveDestinationError`,
        `SameBrokerError`.
        """
        query = f"?destinationBroker={quote(destination, safe='')}" if destination else ""
        await self._ask(Request("unload", "PUT", f"/admin/v2/namespaces/{_parts(bundle)}/unload{query}"))

    async def split(self, bundle: str, positions: Sequence[int]) -> None:
        """Split a bundle at `positions`; its owner keeps the children. Only the namespace's boundaries show the result.

        Raises `StaleBundleError`, `SplitRefusedError`.
        """
        query = "?splitAlgorithmName=specified_positions_divide&unload=false"
        path = f"/admin/v2/namespaces/{_parts(bundle)}/split{query}"
        await self._ask(Request("split", "PUT", path, list(positions)))

    async def topic_positions(self, bundle: str) -> Mapping[str, int]:
        """The hash of each loaded topic of the bundle, by the topic's name."""
        path = f"/admin/v2/namespaces/{_parts(bundle)}/topicHashPositions"
        return api.positions(await self._get("topic_positions", path))

    async def topic_stats(self, topic: str) -> Mapping[str, Any]:
        """Pulsar's statistics of one topic (``msgRateIn``, ``msgInCounter``, ``publishers``, ...)."""
        return api.mapping(await self._get("topic_stats", f"/admin/v2/{_topic(topic)}/stats"))

    async def message_rate(self, broker: str) -> float:
        """Msg/s, in and out, of the topics that `broker` serves, without the system's own."""
        found = await self._get("topic_loads", "/admin/v2/broker-stats/topics", at=await self.origin(broker))
        return api.message_rate(found)

    async def origin(self, broker: str) -> str:
        """Base URL of the admin REST API of a listed broker, if the allow-list permits it. Raises `UnknownError`."""
        if not self.transport.lists(broker) and broker not in await self.brokers():
            raise UnknownError(f"broker {broker} is not among those that Pulsar lists")
        if broker not in self._origins and not self._direct(broker):
            self._origins[broker] = await self._https_origin(broker)
        return self._origins.get(broker) or self._direct(broker)

    async def credentials(self) -> Credentials:
        """The current credentials. Never log them."""
        return await self.transport.identity.proof()

    async def lookup(self, topic: str) -> str:
        """Id of the broker that serves `topic`. **Assigns an unowned bundle.**"""
        return api.broker_id(await self._get("lookup", f"/lookup/v2/topic/{_topic(topic)}"))

    async def runtime(self, broker: str) -> Mapping[str, str]:
        """The complete configuration that `broker` runs with, as text."""
        path = "/admin/v2/brokers/configuration/runtime"
        return api.texts(await self._get("runtime", path, at=await self.origin(broker)))

    async def version(self, broker: str) -> str:
        """The version of Pulsar that `broker` runs; empty if it is too old to say so."""
        try:
            return str(await self._get("version", "/admin/v2/brokers/version", at=await self.origin(broker)))
        except UnknownError:
            return ""

    async def overrides(self) -> Mapping[str, str]:
        """Dynamic configuration of the whole cluster."""
        return api.texts(await self._get("overrides", "/admin/v2/brokers/configuration/values"))

    async def override(self, name: str, value: str) -> None:
        """Set a dynamic value. **Pulsar does not check `value`.**"""
        path = f"/admin/v2/brokers/configuration/{_part(name)}/{_part(value)}"
        await self._ask(Request("override", "POST", path))

    async def drop_override(self, name: str) -> None:
        """Remove a dynamic value, so that each broker's file applies again: see `dynamic_config.resets_removed`."""
        await self._ask(Request("drop_override", "DELETE", f"/admin/v2/brokers/configuration/{_part(name)}"))

    async def _get(self, call: str, path: str, *, at: str = "") -> Any:
        found, _ = await self._ask(Request(call, "GET", path), at=at)
        return found

    async def _ask(self, request: Request, *, at: str = "") -> tuple[Any, str]:
        return await self.transport.ask(request, at=at, budgeted=self.budgeted)

    async def _cluster_name(self) -> str:
        if not self._cluster:
            found = api.texts(await self._get("runtime", "/admin/v2/brokers/configuration/runtime"))
            self._cluster.append(found.get("clusterName") or "pulsar")
        return self._cluster[0]

    async def _https_origin(self, broker: str) -> str:
        """The https base URL of a broker, by a lookup in its heartbeat namespace.

        A running broker owns its heartbeat namespace itself. If another broker owns that namespace, `broker` has just
        stopped. Raises `PulsarError`.
        """
        found, _ = await self._ask(lookup_of(broker))
        if not (url := self.transport.learn(broker, found)):
            raise PulsarUnavailableError(f"broker {broker} does not name its https address")
        return self.transport.admitted(url, f"broker {broker}")

    def _direct(self, broker: str) -> str:
        """The http base URL of a broker, from its id; empty with https: only the broker knows its https address."""
        if urlsplit(self.transport.base).scheme == "https":
            return ""
        return self.transport.admitted(f"http://{broker}", f"broker {broker}")


def _part(name: str) -> str:
    """Quote one part of a path."""
    return quote(name, safe=":")


def _parts(path: str) -> str:
    """Quote each part of a path."""
    return "/".join(map(_part, path.split("/")))


def _topic(name: str) -> str:
    """Convert ``persistent://tenant/namespace/topic`` to a path. The local name may contain slashes."""
    kind, _, rest = name.partition("://")
    tenant, namespace, topic = rest.split("/", 2)
    return f"{kind}/{_part(tenant)}/{_part(namespace)}/{_part(topic)}"
