"""`FakePulsar`: the admin REST of a few Pulsar brokers in one event loop, as far as moves need it.

Status codes, texts and redirects are those of brokers 4.0.8 as measured, for either load manager; what may go wrong
there can be had here at will. Real brokers are `trimtab_testbed.pulsar`; this is for what those can't be made to do.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self
from urllib.parse import unquote

from aiohttp import web

_CLASS = "org.apache.pulsar.broker.loadbalance.{}"
_MODULAR, _EXTENSIBLE = "impl.ModularLoadManagerImpl", "extensions.ExtensibleLoadManagerImpl"
_LAST = 0xFFFFFFFF
_UNLOAD = re.compile(r"/admin/v2/namespaces/([^/]+/[^/]+)/(0x[0-9a-f]{8}_0x[0-9a-f]{8})/unload")
_BOUNDARIES = re.compile(r"/admin/v2/namespaces/([^/]+/[^/]+)/bundles")
_OWNED = re.compile(r"/admin/v2/brokers/[^/]+/([^/]+)/ownedNamespaces")
_POSITIONS = re.compile(r"/admin/v2/namespaces/([^/]+/[^/]+)/(0x[0-9a-f]{8}_0x[0-9a-f]{8})/topicHashPositions")
_LOOKUP = re.compile(r"/lookup/v2/topic/([^/]+)/([^/]+/[^/]+)/(.+)")


class _Answer(Exception):  # noqa: N818  it is no error
    """Ends the handling of a request."""

    def __init__(self, status: int, body: Any = None, location: str = "") -> None:
        super().__init__(status)
        self.status, self.body, self.location = status, body, location


def _refused(status: int, reason: str) -> _Answer:
    return _Answer(status, {"reason": reason})


@dataclass
class FakePulsar:
    """Async context manager: so many `brokers` on free ports of 127.0.0.1.

    extensible: which load manager. clients: somebody asks for every topic, so that what is released is taken at once.
    token: that must be shown. tls: what the brokers show. apart: ids are not the addresses at which they are asked, as
    where brokers speak HTTP as well.
    thieves: by bundle, who takes it at the next unloads instead of the destination. failures: answers (status, text) to
    the next unloads. dying: ids of brokers that die with the first of these. deaf: ids of brokers that don't answer.
    lazy: seconds that an unload takes.
    asked: (id of the broker, method, path with query) of each request. peak: most unloads there were at the same time.
    """

    brokers: int = 3
    extensible: bool = False
    clients: bool = True
    token: str = ""
    tls: ssl.SSLContext | None = None
    apart: bool = False
    spaces: dict[str, tuple[int, ...]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    thieves: dict[str, list[str]] = field(default_factory=dict)
    failures: deque[tuple[int, str]] = field(default_factory=deque)
    deaf: set[str] = field(default_factory=set)
    inactive: set[str] = field(default_factory=set)
    dying: set[str] = field(default_factory=set)
    lazy: float = 0.0
    ids: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    peak: int = 0
    _unloading: int = 0
    _remembered: dict[str, str] = field(default_factory=dict)
    _runners: list[web.ServerRunner] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        for number in range(self.brokers):
            await self._start(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        for runner in self._runners:
            await runner.cleanup()

    async def _start(self, number: int) -> None:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await self._handle(self.ids[number], request)

        runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.tls).start()
        self._runners.append(runner)
        self.addresses.append(f"127.0.0.1:{runner.addresses[0][1]}")
        self.ids.append(f"127.0.0.1:{number + 1}" if self.apart else self.addresses[-1])

    @property
    def url(self) -> str:
        """Base URL of the first broker."""
        return self._origin(self.ids[0])

    def add(self, namespace: str, *owners: str) -> list[str]:
        """A namespace of as many equal bundles, served by these (empty: by nobody); their names."""
        edges = [round(k * _LAST / len(owners)) for k in range(len(owners) + 1)]
        self.spaces[namespace] = tuple(edges)
        names = [f"{namespace}/0x{lower:08x}_0x{upper:08x}" for lower, upper in pairwise(edges)]
        self.owners |= {name: owner for name, owner in zip(names, owners, strict=True) if owner}
        return names

    def count(self, word: str) -> int:
        """Requests whose path holds `word`."""
        return sum(word in path for _, _, path in self.asked)

    async def _handle(self, broker: str, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append((broker, request.method, request.path_qs))
        try:
            if broker in self.deaf:
                await asyncio.sleep(60)
            if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
                raise _refused(401, f"not {request.headers.get('Authorization')}")
            await self._route(broker, request)
        except _Answer as answer:
            headers = {"Location": answer.location} if answer.location else None
            if answer.body is None:
                return web.Response(status=answer.status, headers=headers)
            return web.json_response(answer.body, status=answer.status)
        return web.json_response({"reason": "HTTP 404 Not Found"}, status=404)

    async def _route(self, broker: str, request: web.BaseRequest) -> None:
        """Raises the answer."""
        path = request.path
        if path == "/admin/v2/brokers":
            raise _Answer(200, [name for name in self.ids if name not in self.inactive])
        if path == "/admin/v2/brokers/configuration/runtime":
            name = _CLASS.format(_EXTENSIBLE if self.extensible else _MODULAR)
            raise _Answer(200, {"clusterName": "fake", "loadManagerClassName": name})
        if (found := _BOUNDARIES.fullmatch(path)) is not None:
            raise _Answer(200, {"boundaries": [f"0x{edge:08x}" for edge in self._edges(found[1])]})
        if (found := _OWNED.fullmatch(path)) is not None:
            self._owned(broker, unquote(found[1]), path)
        if (found := _POSITIONS.fullmatch(path)) is not None:
            self._positions(broker, found[1], found[2], path)
        if path == "/admin/v2/broker-stats/load-report":
            raise _Answer(200, {"bundles": [name for name, owner in self.owners.items() if owner == broker]})
        if (found := _LOOKUP.fullmatch(path)) is not None:
            self._lookup(found[1], found[2], found[3])
        if (found := _UNLOAD.fullmatch(path)) is not None and request.method == "PUT":
            await self._unload(broker, request, found[1], found[2])

    def _owned(self, broker: str, asked: str, path: str) -> None:
        if asked not in self.ids or asked in self.inactive:
            raise _refused(404, f"Broker id '{asked}' not found in available brokers.")
        if asked != broker:
            raise _Answer(307, location=self._origin(asked) + path)
        held: Mapping[str, bool] = {"is_controlled": False, "is_active": True}
        served = [name for name, owner in self.owners.items() if owner == broker]
        raise _Answer(200, dict.fromkeys([f"pulsar/{broker}/0x00000000_0xffffffff", *served], held))

    def _check_range(self, namespace: str, range_: str) -> None:
        if tuple(int(edge, 16) for edge in range_.split("_")) not in set(pairwise(self._edges(namespace))):
            told = f"{namespace}/{range_}"
            raise _refused(412, f"Invalid upper boundary for bundle {told}. Expected upper boundary of another")

    def _positions(self, broker: str, namespace: str, range_: str, path: str) -> None:
        self._check_range(namespace, range_)
        owner = self.owners.get(f"{namespace}/{range_}")
        if owner is None:
            raise _refused(412, f"Failed to find ownership for ServiceUnit:{namespace}/{range_}")
        if owner != broker:
            raise _Answer(307, location=f"{self._origin(owner)}{path}?authoritative=false")
        raise _Answer(200, {"namespace": namespace, "bundle": range_, "topicHashPositions": {}})

    def _lookup(self, kind: str, namespace: str, topic: str) -> None:
        if namespace.startswith("pulsar/"):
            raise _Answer(200, {"httpUrlTls" if self.tls else "httpUrl": self._origin(unquote(namespace)[7:])})
        place = zlib.crc32(f"{kind}://{namespace}/{topic}".encode())
        lower, upper = next((a, b) for a, b in pairwise(self._edges(namespace)) if a <= place < b or b == _LAST)
        bundle = f"{namespace}/0x{lower:08x}_0x{upper:08x}"
        if bundle not in self.owners:
            self.owners[bundle] = self._remembered.pop(bundle, self.ids[0])
        raise _Answer(200, {"httpUrl": self._origin(self.owners[bundle])})

    def _edges(self, namespace: str) -> tuple[int, ...]:
        if namespace not in self.spaces:
            raise _refused(404, "Namespace not found")
        return self.spaces[namespace]

    async def _unload(self, broker: str, request: web.BaseRequest, namespace: str, range_: str) -> None:
        bundle, destination = f"{namespace}/{range_}", request.query.get("destinationBroker", "")
        self._check_range(namespace, range_)
        if destination and (destination not in self.ids or destination in self.inactive):
            raise _refused(409, "Not allowed unload namespace bundle to inactive destination broker")
        owner = self.owners.get(bundle)
        if owner not in {None, broker}:
            raise _Answer(307, location=f"{self._origin(str(owner))}{request.path_qs}")
        if self.failures:
            self.inactive |= self.dying
            raise _refused(*self.failures.popleft())
        if owner == destination and self.extensible:
            raise _refused(500, f"Namespace bundle: {bundle} own by {owner}, cannot be transfer to same broker.")
        await self._release(bundle, destination)
        raise _Answer(204)

    async def _release(self, bundle: str, destination: str) -> None:
        self._unloading += 1
        self.peak = max(self.peak, self._unloading)
        await asyncio.sleep(self.lazy)
        self._unloading -= 1
        had = self.owners.pop(bundle, None)
        taker = self.thieves[bundle].pop(0) if self.thieves.get(bundle) else destination
        if had is not None and (self.clients or self.extensible):
            self.owners[bundle] = taker
        elif not self.extensible:
            self._remembered[bundle] = taker

    def _origin(self, broker: str) -> str:
        address = self.addresses[self.ids.index(broker)] if broker in self.ids else broker
        return f"{'https' if self.tls else 'http'}://{address}"
