"""`Transport`: one request to Pulsar's admin REST API, with redirects, limits and a request budget.

Redirects (307) keep the method. They are followed only to brokers that Pulsar lists, by host and port, at addresses
that an administrator allows: a token must not reach a stranger. A request is never retried, except after a 401 whose
token was out of date, which was not carried out. `Budget` bounds the requests per second.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import aiohttp
from yarl import URL

from trimtab_operator.pulsar.client import api
from trimtab_operator.pulsar.client.auth import Bearer, Identity
from trimtab_operator.pulsar.client.errors import PulsarRefusedError, PulsarUnavailableError, refusal
from trimtab_operator.pulsar.client.wire import text_of, way_to
from trimtab_pipeline.bodies import TooDeepError, TooLargeError, json_of


@dataclass(slots=True)
class Budget:
    """At most `rate` requests a second in the long run, and `rate` at once after a second of silence.

    clock: seconds that never jump, the event loop's if left out. Each request books its turn when it comes, so they
    are served in order.
    """

    rate: float
    clock: Callable[[], float] | None = None
    _next: float = field(default=float("-inf"))

    def book(self, now: float) -> float:
        """Seconds that a request which comes at `now` must wait."""
        at = max(self._next, now - 1.0 + 1.0 / self.rate)
        self._next = at + 1.0 / self.rate
        return max(0.0, at - now)

    async def wait(self) -> float:
        """Wait for one's turn; the seconds it took."""
        clock = self.clock or asyncio.get_running_loop().time
        if (delay := self.book(clock())) > 0:
            await asyncio.sleep(delay)
        return delay


HOPS = 6
"""Redirects that one request follows; from any broker to the leader and on to the owner are two."""


LARGE = 1_000_000
"""Bytes from which on an answer is read off the event loop."""


LARGEST = 64 * 2**20
"""Bytes of one answer. The largest is about the topics that one broker serves: 10,000 take some 30 MB."""


_PORTS = {"http": 80, "https": 443}

_REDIRECT, _UNAUTHORIZED, _ERROR = 307, 401, 300


def _nothing(*_: Any) -> None:
    """Whoever wants to know may listen."""


@dataclass(frozen=True, slots=True)
class Guards:
    """What each request passes.

    admit:   the URL to ask for a URL; raises `ValueError` when it may not be asked.
    fence:   called before each write with the write in words; raises when this process may not write.
    observe: told of each request: call, status (``error`` for no answer), seconds. waited: seconds spent on the budget.
    requests: what requests are made of, which may look once more when the first byte is about to be sent.
    """

    admit: Callable[[str], str] = str
    fence: Callable[[str], None] = _nothing
    observe: Callable[[str, str, float], None] = _nothing
    waited: Callable[[float], None] = _nothing
    requests: type[aiohttp.ClientRequest] = aiohttp.ClientRequest


@dataclass(frozen=True, slots=True)
class Request:
    """One call: its name in metrics and errors, method, path with query (from the host on), and JSON body."""

    call: str
    method: str
    path: str
    body: Any = None

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return self.method != "GET"


@dataclass(slots=True)
class Transport:
    """Asks the Pulsar cluster at `base` (admitted already), each request within `timeout` seconds.

    Brokers are known as Pulsar lists them, and listed anew when a redirect leads to another one. If what was asked for
    the cluster does not answer, the next request for the cluster goes to another broker: each of them can answer.
    """

    session: aiohttp.ClientSession
    base: str
    timeout: float
    budget: Budget
    guards: Guards = Guards()
    identity: Identity = field(default_factory=Bearer)
    _listed: tuple[str, ...] = ()
    _others: list[str] = field(default_factory=list)
    _secure: dict[str, str] = field(default_factory=dict)
    _turn: int = 0

    async def ask(self, request: Request, *, at: str = "", budgeted: bool = True) -> tuple[Any, str]:
        """The answer (JSON as values, other text as it is, None for an empty one), and the URL it came from.

        at: base URL of one broker; left out: that of the cluster. budgeted: wait for the budget. Raises `PulsarError`.
        """
        if budgeted and not request.writes:
            self.guards.waited(await self.budget.wait())
        headers = await self.identity.headers()  # its issuer has a time of its own, and is told by its name
        try:
            return await self._in_time(request, headers, at)
        except PulsarRefusedError as error:
            if error.status != _UNAUTHORIZED or not await self.identity.refused(headers):
                raise
        return await self._in_time(request, await self.identity.headers(), at)

    async def _in_time(self, request: Request, headers: Mapping[str, str], at: str) -> tuple[Any, str]:
        """The same within the time-out. What did not answer for the cluster is not asked next. Raises `PulsarError`."""
        run = self._turn
        try:
            async with asyncio.timeout(self.timeout):
                return await self._follow(request, headers, (at or self._door()).rstrip("/") + request.path)
        except TimeoutError:
            self._turn = self._turn if at else run + 1
            told = f"{self._told(request)}: no answer within {self.timeout:g} s"
            raise PulsarUnavailableError(told) from None
        except PulsarUnavailableError as error:
            self._turn = self._turn if at or error.status else run + 1
            raise

    async def place(self, request: Request, at: str, *, budgeted: bool = True) -> str:
        """``host:port`` that the broker at `at` (base URL) names for a request; empty when it answers itself.

        Whom it names is not asked. Raises `PulsarError`.
        """
        if budgeted:
            self.guards.waited(await self.budget.wait())
        headers = await self.identity.headers()
        try:
            async with asyncio.timeout(self.timeout):
                status, text, location = await self._once(request, headers, at.rstrip("/") + request.path)
        except TimeoutError:
            raise PulsarUnavailableError(f"{self._told(request)}: no answer within {self.timeout:g} s") from None
        if status == _REDIRECT:
            return urlsplit(self._joined(request, at, location)).netloc
        if status >= _ERROR:
            raise refusal(request.call, status, self.identity.hide(text), self._told(request))
        return ""

    @property
    def listed(self) -> tuple[str, ...]:
        """Ids of the brokers that Pulsar listed last."""
        return self._listed

    def list_brokers(self, ids: Iterable[str]) -> None:
        """Take note of whom Pulsar lists as its brokers."""
        self._listed = tuple(sorted(ids))
        self._others = list(self._reachable()) if urlsplit(self.base).scheme == "http" else []
        self._secure = {broker: origin for broker, origin in self._secure.items() if broker in self._listed}

    def lists(self, broker: str) -> bool:
        """Whether Pulsar listed the broker of this id when it was asked last."""
        return broker in self._listed

    def _reachable(self) -> Iterator[str]:
        """Base URLs of the listed brokers that may be asked: by http they are told by their ids."""
        for broker in self._listed:
            with suppress(ValueError):
                if (url := self.guards.admit(f"http://{broker}")).rstrip("/") != self.base.rstrip("/"):
                    yield url

    def _door(self) -> str:
        """Whom to ask for the cluster now."""
        doors = [self.base, *self._others]
        return doors[self._turn % len(doors)]

    async def _follow(self, request: Request, headers: Mapping[str, str], url: str) -> tuple[Any, str]:
        for _ in range(HOPS + 1):
            status, text, location = await self._once(request, headers, url)
            if status == _REDIRECT:
                url = await self._admitted(request, headers, self._joined(request, url, location))
            elif status >= _ERROR:
                raise refusal(request.call, status, self.identity.hide(text), self._told(request))
            else:
                return await self._parsed(request, text), url
        raise PulsarUnavailableError(f"{self._told(request)}: more than {HOPS} redirects")

    def _joined(self, request: Request, url: str, location: str) -> str:
        """Where a redirect of `url` leads. Raises `PulsarUnavailableError` when that is no URL."""
        try:
            return urlsplit(urljoin(url, location)).geturl()
        except ValueError:
            shown = self.identity.hide(location)[:200]
            raise PulsarUnavailableError(f"{self._told(request)}: redirected to {shown!r}, which is no URL") from None

    async def _once(self, request: Request, headers: Mapping[str, str], url: str) -> tuple[int, str, str]:
        kind, way = {} if request.body is None else {"Content-Type": "application/json"}, way_to(url)
        data = None if request.body is None else json.dumps(request.body)
        if request.writes:
            self.guards.fence(self._told(request))
        begun, code = time.monotonic(), "error"
        try:
            sent = self.session.request(
                request.method,
                URL(url, encoded=True),
                headers={**headers, **kind, **way.headers},
                data=data,
                proxy=way.proxy,
                proxy_headers=way.tunnel,
                allow_redirects=False,
                skip_auto_headers=["Content-Type"],  # Pulsar refuses (415) a type it does not expect without a body
            )
            async with sent as answer:
                text = await text_of(answer, LARGEST)
                code = str(answer.status)
                return answer.status, text, answer.headers.get("Location", "")
        except (aiohttp.ClientError, OSError, TooLargeError) as error:
            why = self.identity.hide(str(error) or type(error).__name__)
            raise PulsarUnavailableError(f"{self._told(request)}: {why}") from None
        finally:
            self.guards.observe(request.call, code, time.monotonic() - begun)

    async def _admitted(self, request: Request, headers: Mapping[str, str], url: str) -> str:
        """The URL that a redirect leads to. Raises `PulsarRefusedError` for one that must not be asked."""
        parts, base = urlsplit(url), urlsplit(self.base)
        place = f"{self._told(request)}: redirected to {parts.scheme}://{parts.netloc}"
        if parts.scheme != base.scheme:
            raise PulsarRefusedError(
                f"{place}, but adminUrl is {base.scheme}: name the brokers themselves, or a Service"
            )
        if not await self._belongs(url, headers):
            raise PulsarRefusedError(
                f"{place}, which Pulsar does not list as a broker: host and port must be those listed"
            )
        origin = self.admitted(f"{parts.scheme}://{parts.netloc}", place)
        return origin + parts.path + (f"?{parts.query}" if parts.query else "")

    def admitted(self, origin: str, told: str) -> str:
        """The base URL to ask for `origin`. told: what for. Raises `PulsarRefusedError`."""
        try:
            return self.guards.admit(origin).rstrip("/")
        except ValueError as error:
            raise PulsarRefusedError(f"{told}: {error}") from None

    async def _belongs(self, url: str, headers: Mapping[str, str]) -> bool:
        """Whether `url` leads to what is asked for the cluster, or to a broker that Pulsar lists."""
        scheme, place = urlsplit(self.base).scheme, _place(url)
        if place == _place(self.base) or place in self._places(scheme):
            return True
        self.list_brokers(api.names(await self._plain(Request("brokers", "GET", "/admin/v2/brokers"), headers)))
        if scheme == "https":  # brokers that speak http, too, are listed by its port
            for broker in sorted(self._listed, key=self._secure.__contains__):  # those that are not known yet first
                if place not in self._places(scheme) and _place(f"//{broker}")[0] == place[0]:
                    self.learn(broker, await self._plain(lookup_of(broker), headers))
        return place in self._places(scheme)

    def _places(self, scheme: str) -> set[tuple[str, int]]:
        """Host and port of each listed broker."""
        return {_place(f"{scheme}://{broker}") for broker in self._listed} | set(map(_place, self._secure.values()))

    def learn(self, broker: str, found: Any) -> str:
        """Take note of where `broker` is asked by https, as `found`, the answer to its `lookup_of`, tells.

        The base URL; empty where the answer tells none, or names another broker: then this one has just ended.
        """
        url = api.https_url(found)
        own, others = _place(f"//{broker}")[0], {_place(f"//{other}")[0] for other in self._listed}
        if not url or _place(url)[0] in others - {own}:
            return ""
        self._secure[broker] = url
        return url

    async def _plain(self, request: Request, headers: Mapping[str, str]) -> Any:
        """The answer to a request that nobody redirects."""
        status, text, _ = await self._once(request, headers, self._door().rstrip("/") + request.path)
        if status >= _ERROR:
            raise refusal(request.call, status, self.identity.hide(text), self._told(request))
        return await self._parsed(request, text)

    async def _parsed(self, request: Request, text: str) -> Any:
        if not text.strip():
            return None
        try:
            return await asyncio.to_thread(json_of, text) if len(text) > LARGE else json_of(text)
        except TooDeepError as error:
            raise PulsarUnavailableError(f"{self._told(request)}: {error}") from None
        except ValueError:
            return text

    def _told(self, request: Request) -> str:
        return f"{request.method} {request.path.partition('?')[0]}"


def lookup_of(broker: str) -> Request:
    """What tells where `broker` is asked by https: a lookup in the namespace that is its own."""
    return Request("origin", "GET", f"/lookup/v2/topic/non-persistent/pulsar/{quote(broker, safe=':')}/health")


def _place(url: str) -> tuple[str, int]:
    """Host and port of a URL; 0 for a port that can't be told."""
    parts = urlsplit(url)
    try:
        return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return parts.hostname or "", 0
