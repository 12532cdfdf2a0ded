"""`FakePulsar`: the admin REST API of a fake Pulsar cluster, with the redirects and faults of brokers 4.0.8.

``python pulsar_admin.py --brokers 100 --namespaces 100 --bundles 600`` serves a large cluster
and prints its base URL.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import ssl
import sys
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Self
from urllib.parse import unquote

from aiohttp import web

from pulsar_in_memory import FULL, InMemoryPulsar, bundle_name
from trimtab_operator.pulsar.client.errors import (
    InactiveDestinationError,
    PulsarError,
    SameBrokerError,
    UnknownError,
    UnownedError,
)

_ADMIN = "/admin/v2"
_SPACE = f"{_ADMIN}/namespaces/([^/]+/[^/]+)"
_RANGE = "0x[0-9a-f]{8}_0x[0-9a-f]{8}"
_BUNDLE = f"([^/]+/[^/]+/{_RANGE})"


class _Redirect(Exception):  # noqa: N818  it is not an error
    """The answer 307; its text is the location."""


@dataclass
class FakePulsar(InMemoryPulsar):
    """Serves the REST API: as an async context manager it starts `size` brokers on free ports of 127.0.0.1.

    clients:  whether every topic has a client, so that a released bundle is taken immediately.
    token:    the token that each request must have.
    tls:      TLS context of the brokers.
    apart:    whether ids differ from the addresses that answer, as with TLS, where an id names the port for HTTP.
    thieves:  bundle -> the brokers that take it at the next unloads instead of the destination.
    failures: answers (status, text) to the next unloads.
    dying:    ids that become inactive with the first failure.
    lazy:     seconds that an unload takes.
    stalled:  whether brokers answer nothing but the list of brokers.
    storeless: whether brokers answer only from their caches, as without their metadata store.
    requests: (id of the broker, method, path with query) so far.
    peak:     most unloads at the same time.
    """

    size: int = 3
    clients: bool = True
    token: str = ""
    tls: ssl.SSLContext | None = None
    apart: bool = False
    thieves: dict[str, list[str]] = field(default_factory=dict)
    failures: deque[tuple[int, str]] = field(default_factory=deque)
    dying: set[str] = field(default_factory=set)
    lazy: float = 0.0
    stalled: bool = False
    storeless: bool = False
    addresses: list[str] = field(default_factory=list)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    peak: int = 0
    _unloading: int = 0
    _remembered: dict[str, str] = field(default_factory=dict)
    _runners: list[web.ServerRunner] = field(default_factory=list)

    @classmethod
    def large(cls, brokers: int, namespaces: int, bundles: int, port: int = 8080) -> Self:
        """A cluster with namespaces of the tenant ``t``. They have `bundles` bundles each, served by brokers in turn.

        All brokers listen on `port`, each on its own address of this machine (Linux: 127.0.0.0/8).
        """
        hosts = [f"127.0.{1 + number // 250}.{1 + number % 250}" for number in range(brokers)]
        fake = cls(ids=[f"{host}:{port}" for host in hosts], extensible=True)
        for number in range(namespaces):
            fake.add(f"t/ns-{number:04d}", bundles, *fake.ids)
        return fake

    async def __aenter__(self) -> Self:
        for place in list(self.ids) or [""] * self.size:
            await self._start(place)
        return self

    async def __aexit__(self, *_: object) -> None:
        for runner in self._runners:
            await runner.cleanup()

    async def _start(self, place: str) -> None:
        """Start the next broker at ``host:port``, or on a free port."""
        number = len(self.addresses)
        host, _, port = place.partition(":")

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await self._handle(self.ids[number], request)

        runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, host or "127.0.0.1", int(port or 0), ssl_context=self.tls).start()
        self._runners.append(runner)
        self.addresses.append(place or f"127.0.0.1:{runner.addresses[0][1]}")
        if not place:
            self.ids.append(f"127.0.0.1:{number + 1}" if self.apart else self.addresses[-1])

    @property
    def url(self) -> str:
        """Base URL of the first broker."""
        return self._origin(self.ids[0])

    def count(self, word: str) -> int:
        """Number of requests whose path contains `word`."""
        return sum(word in path for _, _, path in self.requests)

    def _origin(self, broker: str) -> str:
        address = self.addresses[self.ids.index(broker)] if broker in self.ids else broker
        return f"{'https' if self.tls else 'http'}://{address}"

    async def _handle(self, broker: str, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((broker, request.method, request.path_qs))
        if broker in self.deaf or (self.stalled and request.path != f"{_ADMIN}/brokers"):
            await asyncio.sleep(60)
        if self.storeless and request.path.startswith(f"{_ADMIN}/tenants/"):
            return web.json_response({"reason": "KeeperException$SessionExpiredException"}, status=500)
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"reason": f"not {request.headers.get('Authorization')}"}, status=401)
        try:
            body = await self._route(broker, request)
        except _Redirect as redirect:
            return web.Response(status=307, headers={"Location": str(redirect)})
        except PulsarError as error:
            return web.json_response({"reason": str(error)}, status=error.status or 503)
        if body is None:
            return web.Response(status=204)
        return web.json_response(sorted(body) if isinstance(body, frozenset) else body)

    async def _route(self, broker: str, request: web.BaseRequest) -> Any:
        """The body of the answer; raises `_Redirect` or `PulsarError`."""
        for path, answer in (self._put if request.method == "PUT" else self._get).items():
            if (found := re.fullmatch(path, request.path)) is not None:
                return await answer(self, broker, request, *map(unquote, found.groups()))
        raise UnknownError("HTTP 404 Not Found", status=404)

    async def _report(self, broker: str, _: web.BaseRequest) -> Mapping[str, list[str]]:
        return {"bundles": sorted(self.served(broker))}

    async def _group(self, _broker: str, _request: web.BaseRequest, namespace: str) -> str:
        return self.groups.get(namespace, "")

    async def _boundaries(self, _broker: str, _request: web.BaseRequest, namespace: str) -> Mapping[str, list[str]]:
        return {"boundaries": [f"0x{edge:08x}" for edge in await self.boundaries(namespace)]}

    async def _owned(self, broker: str, request: web.BaseRequest, asked: str) -> Any:
        if asked not in await self.brokers():
            raise UnknownError(f"Broker id '{asked}' not found in available brokers.", status=404)
        if asked != broker:
            raise _Redirect(self._origin(asked) + request.path)
        held: Mapping[str, bool] = {"is_controlled": False, "is_active": True}
        return dict.fromkeys([f"pulsar/{broker}/0x00000000_0xffffffff", *self.served(broker)], held)

    async def _positions(self, broker: str, request: web.BaseRequest, namespace: str, range_: str) -> Any:
        bundle = f"{namespace}/{range_}"
        self.located(bundle)
        owner = self.owners.get(bundle)
        if owner is None:
            raise UnownedError(f"Failed to find ownership for ServiceUnit:{bundle}", status=412)
        if owner != broker:
            raise _Redirect(f"{self._origin(owner)}{request.path}?authoritative=false")
        positions = await self.topic_positions(bundle)
        return {"namespace": namespace, "bundle": range_, "topicHashPositions": dict(positions)}

    async def _lookup(
        self, _broker: str, _request: web.BaseRequest, kind: str, namespace: str, topic: str
    ) -> Mapping[str, str]:
        """The owner of a topic. If its bundle has no owner, the bundle gets one."""
        if namespace.startswith("pulsar/"):
            return {"httpUrlTls" if self.tls else "httpUrl": self._origin(namespace[7:])}
        place = zlib.crc32(f"{kind}://{namespace}/{topic}".encode())
        lower, upper = next((a, b) for a, b in pairwise(self.edges(namespace)) if a <= place < b or b == FULL)
        bundle = bundle_name(namespace, lower, upper)
        if bundle not in self.owners:
            self.owners[bundle] = self._remembered.pop(bundle.rpartition("/")[2], self.ids[0])
        return {"httpUrl": self._origin(self.owners[bundle])}

    async def _unload(self, broker: str, request: web.BaseRequest, bundle: str) -> None:
        destination = request.query.get("destinationBroker", "")
        self.located(bundle)
        if destination and destination not in await self.brokers():
            text = "Not allowed unload namespace bundle to inactive destination broker"
            raise InactiveDestinationError(text, status=409)
        owner = self.owners.get(bundle)
        if owner not in {None, broker}:
            raise _Redirect(f"{self._origin(str(owner))}{request.path_qs}")
        if self.failures:
            self.inactive |= self.dying
            status, text = self.failures.popleft()
            raise PulsarError(text, status=status)
        if owner == destination and self.extensible:
            text = f"Namespace bundle: {bundle} own by {owner}, cannot be transfer to same broker."
            raise SameBrokerError(text, status=500)
        await self._release(bundle, destination)

    async def _release(self, bundle: str, destination: str) -> None:
        """Release the bundle to `destination`.

        The modular leader remembers the destination by the bundle's range, without its namespace, as in 4.0.8.
        """
        extent = bundle.rpartition("/")[2]
        if not self.extensible:
            self._remembered[extent] = destination
        self._unloading += 1
        self.peak = max(self.peak, self._unloading)
        await asyncio.sleep(self.lazy)
        self._unloading -= 1
        had = self.owners.pop(bundle, None)
        if self.thieves.get(bundle):
            destination = self._remembered[extent] = self.thieves[bundle].pop(0)
        if had is not None and self.extensible:
            self.owners[bundle] = destination
        elif had is not None and self.clients:
            self.owners[bundle] = self._remembered.pop(extent, self.ids[0])

    async def _serve(self, _broker: str, request: web.BaseRequest, bundle: str) -> None:
        """Not in Pulsar: have another broker serve the bundle, without an unload."""
        self.owners[bundle] = request.query["broker"]

    async def _counts(self, *_: Any) -> Mapping[str, int]:
        """Not in Pulsar: the number of requests so far."""
        return {"requests": sum(path != "/counts" for _, _, path in self.requests)}

    _get: ClassVar[Mapping[str, Callable[..., Awaitable[Any]]]] = {
        f"{_ADMIN}/brokers": lambda fake, *_: fake.brokers(),
        f"{_ADMIN}/brokers/configuration/runtime": lambda fake, broker, _: fake.runtime(broker),
        f"{_ADMIN}/brokers/version": lambda fake, broker, _: fake.version(broker),
        f"{_ADMIN}/brokers/[^/]+/([^/]+)/ownedNamespaces": _owned,
        f"{_ADMIN}/broker-stats/load-report": _report,
        f"{_ADMIN}/clusters": lambda fake, *_: fake.clusters(),
        f"{_ADMIN}/clusters/([^/]+)/namespaceIsolationPolicies": lambda fake, _, __, cluster: fake.isolation(cluster),
        f"{_ADMIN}/tenants": lambda fake, *_: fake.tenants(),
        f"{_ADMIN}/namespaces/([^/]+)": lambda fake, _, __, tenant: fake.namespaces(tenant),
        _SPACE: lambda fake, _, __, namespace: fake.policies(namespace),
        f"{_SPACE}/antiAffinity": _group,
        f"{_SPACE}/bundles": _boundaries,
        f"{_SPACE}/({_RANGE})/topicHashPositions": _positions,
        "/lookup/v2/topic/([^/]+)/([^/]+/[^/]+)/(.+)": _lookup,
        "/counts": _counts,
    }
    _put: ClassVar[Mapping[str, Callable[..., Awaitable[Any]]]] = {
        f"{_ADMIN}/namespaces/{_BUNDLE}/unload": _unload,
        f"/serve/{_BUNDLE}": _serve,
    }


async def _run(fake: FakePulsar) -> None:
    async with fake:
        sys.stdout.write(f"{fake.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Serve a large cluster until the process is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("brokers", 100), ("namespaces", 100), ("bundles", 600), ("port", 8080)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    asyncio.run(_run(FakePulsar.large(asked.brokers, asked.namespaces, asked.bundles, asked.port)))


if __name__ == "__main__":
    main()
