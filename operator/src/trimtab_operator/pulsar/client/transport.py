"""`Transport`: sends requests to Pulsar's admin REST API, with redirects, limits and a request budget.

Redirects (307) keep the method. They are followed only to the hosts and ports of brokers that Pulsar lists, and only if
the administrator allows these addresses. So a token never reaches another server. A request is retried only after a 401
with an outdated token: Pulsar has not executed such a request. `Budget` limits the requests per second.
"""

from __future__ import annotations

import asyncio
import json
import re
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
from trimtab_operator.pulsar.client.wire import route_to, text_of
from trimtab_pipeline.credentials import lapse_of
from trimtab_pipeline.prometheus.response_limits import TooDeepError, TooLargeError, json_of


@dataclass(slots=True)
class Budget:
    """Limits requests to `rate` per second, with a burst of `rate` after an idle second.

    Requests wait in the order of their arrival. booked: requests so far.
    """

    rate: float
    booked: int = 0
    _next: float = field(default=float("-inf"))

    def book(self, now: float) -> float:
        """Reserve a slot for a request at `now` (seconds of a monotonic clock), and return the seconds to wait."""
        self.booked += 1
        at = max(self._next, now - 1.0 + 1.0 / self.rate)
        self._next = at + 1.0 / self.rate
        return max(0.0, at - now)

    async def wait(self) -> float:
        """Wait for a slot, and return the seconds waited."""
        if (delay := self.book(asyncio.get_running_loop().time())) > 0:
            await asyncio.sleep(delay)
        return delay


HOPS = 6
"""Maximum number of redirects of one request. A request from any broker via the leader to the owner needs two."""

LARGE = 1_000_000
"""Size in bytes above which an answer is parsed in a thread."""

LARGEST = 64 * 2**20
"""Maximum size of one answer, in bytes. The largest one lists a broker's topics: 10,000 take about 30 MB."""


_PORTS = {"http": 80, "https": 443}

_CONTEXT = re.compile(r" ssl:(<[^>]*>|\w+)")
"""What aiohttp shows of a TLS context: nothing that helps, and another address each time."""

_REDIRECT, _UNAUTHORIZED, _ERROR = 307, 401, 300


def _ignore(*_: Any) -> None:
    """Do nothing: the default listener."""


@dataclass(frozen=True, slots=True)
class Guards:
    """Checks and listeners of each request.

    admit:   checks a URL and returns it in the form to use; raises `ValueError` if it is not allowed.
    fence:   called before each write with its description; raises if this process may not write.
    observe: called after each request with call, status (``error`` for no answer) and seconds.
    waited:  called with the seconds that a request waited for the budget.
    requests: class of the requests. It may check the fence again just before the first byte is sent.
    """

    admit: Callable[[str], str] = str
    fence: Callable[[str], None] = _ignore
    observe: Callable[[str, str, float], None] = _ignore
    waited: Callable[[float], None] = _ignore
    requests: type[aiohttp.ClientRequest] = aiohttp.ClientRequest


@dataclass(frozen=True, slots=True)
class Request:
    """One call: its name in metrics and errors, method, path with query (all that follows the host), and JSON body."""

    call: str
    method: str
    path: str
    body: Any = None

    @property
    def writes(self) -> bool:
        """Whether the request changes anything."""
        return self.method != "GET"

    @property
    def label(self) -> str:
        """Method and path without the query, for messages."""
        return f"{self.method} {self.path.partition('?')[0]}"


@dataclass(slots=True)
class Transport:
    """Sends requests to the Pulsar cluster at `base` (an allowed URL), each within `timeout` seconds.

    It knows the brokers that Pulsar lists, and reads the list again when a redirect leads to an unknown one. Any broker
    can answer requests about the cluster: if one does not answer, the next request goes to another broker.
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
        """Send a request. Returns the answer (JSON as values, other text as it is, None if empty) and its URL.

        at: base URL of one broker; default is the cluster's. budgeted: wait for the budget. Raises `PulsarError`.
        """
        if budgeted and not request.writes:
            self.guards.waited(await self.budget.wait())
        headers = await self.identity.headers()  # a token issuer has its own time-out and error text
        try:
            return await self._in_time(request, headers, at)
        except PulsarRefusedError as error:
            if error.status != _UNAUTHORIZED:
                raise
            if not await self.identity.refused(headers):
                lapse = lapse_of(headers.get("Authorization", ""), time.time())
                raise PulsarRefusedError("; ".join(filter(None, (str(error), lapse))), status=error.status) from None
        return await self._in_time(request, await self.identity.headers(), at)

    async def _in_time(self, request: Request, headers: Mapping[str, str], at: str) -> tuple[Any, str]:
        """Send within the time-out. After a failure the next cluster request uses another URL. Raises `PulsarError`."""
        turn = self._turn
        try:
            async with asyncio.timeout(self.timeout):
                return await self._follow(request, headers, (at or self._cluster_url()).rstrip("/") + request.path)
        except TimeoutError:
            self._turn = self._turn if at else turn + 1
            raise PulsarUnavailableError(f"{request.label}: no answer within {self.timeout:g} s") from None
        except PulsarUnavailableError as error:
            self._turn = self._turn if at or error.status else turn + 1
            raise

    async def redirect_target(self, request: Request, at: str, *, budgeted: bool = True) -> str:
        """``host:port`` to which the broker at `at` (base URL) redirects; empty if it answers the request itself.

        The redirect is not followed. Raises `PulsarError`.
        """
        if budgeted:
            self.guards.waited(await self.budget.wait())
        headers = await self.identity.headers()
        try:
            async with asyncio.timeout(self.timeout):
                status, text, location = await self._once(request, headers, at.rstrip("/") + request.path)
        except TimeoutError:
            raise PulsarUnavailableError(f"{request.label}: no answer within {self.timeout:g} s") from None
        if status == _REDIRECT:
            return urlsplit(self._joined(request, at, location)).netloc
        if status >= _ERROR:
            raise refusal(request.call, status, self.identity.hide(text), request.label)
        return ""

    @property
    def listed(self) -> tuple[str, ...]:
        """Ids of the brokers in Pulsar's latest list."""
        return self._listed

    def list_brokers(self, ids: Iterable[str]) -> None:
        """Remember the brokers that Pulsar lists now."""
        self._listed = tuple(sorted(ids))
        self._others = list(self._reachable()) if urlsplit(self.base).scheme == "http" else []
        self._secure = {broker: origin for broker, origin in self._secure.items() if broker in self._listed}

    def lists(self, broker: str) -> bool:
        """Whether Pulsar's latest list has the broker of this id."""
        return broker in self._listed

    def _reachable(self) -> Iterator[str]:
        """The http base URLs of the listed and allowed brokers."""
        for broker in self._listed:
            with suppress(ValueError):
                if (url := self.guards.admit(f"http://{broker}")).rstrip("/") != self.base.rstrip("/"):
                    yield url

    def _cluster_url(self) -> str:
        """Base URL for the next request about the cluster."""
        urls = [self.base, *self._others]
        return urls[self._turn % len(urls)]

    async def _follow(self, request: Request, headers: Mapping[str, str], url: str) -> tuple[Any, str]:
        for _ in range(HOPS + 1):
            status, text, location = await self._once(request, headers, url)
            if status == _REDIRECT:
                url = await self._admitted(request, headers, self._joined(request, url, location))
            elif status >= _ERROR:
                raise refusal(request.call, status, self.identity.hide(text), request.label)
            else:
                return await self._parsed(request, text), url
        raise PulsarUnavailableError(f"{request.label}: more than {HOPS} redirects")

    def _joined(self, request: Request, url: str, location: str) -> str:
        """The target of a redirect of `url`. Raises `PulsarUnavailableError` if it is not a URL."""
        try:
            return urlsplit(urljoin(url, location)).geturl()
        except ValueError:
            shown = self.identity.hide(location)[:200]
            raise PulsarUnavailableError(f"{request.label}: redirected to {shown!r}, which is not a URL") from None

    async def _once(self, request: Request, headers: Mapping[str, str], url: str) -> tuple[int, str, str]:
        kind, route = {} if request.body is None else {"Content-Type": "application/json"}, route_to(url)
        data = None if request.body is None else json.dumps(request.body)
        if request.writes:
            self.guards.fence(request.label)
        begun, code = time.monotonic(), "error"
        try:
            sent = self.session.request(
                request.method,
                URL(url, encoded=True),
                headers={**headers, **kind, **route.headers},
                data=data,
                proxy=route.proxy,
                proxy_headers=route.tunnel,
                allow_redirects=False,
                skip_auto_headers=["Content-Type"],  # Pulsar refuses (415) an unexpected type without a body
            )
            async with sent as answer:
                text = await text_of(answer, LARGEST)
                code = str(answer.status)
                return answer.status, text, answer.headers.get("Location", "")
        except (aiohttp.ClientError, OSError, TooLargeError) as error:
            why = self.identity.hide(_CONTEXT.sub("", str(error)) or type(error).__name__)
            raise PulsarUnavailableError(f"{request.label}: {why}") from None
        finally:
            self.guards.observe(request.call, code, time.monotonic() - begun)

    async def _admitted(self, request: Request, headers: Mapping[str, str], url: str) -> str:
        """The URL to follow for a redirect. Raises `PulsarRefusedError` if it is not allowed."""
        parts, base = urlsplit(url), urlsplit(self.base)
        place = f"{request.label}: redirected to {parts.scheme}://{parts.netloc}"
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

    def admitted(self, origin: str, label: str) -> str:
        """The base URL to use for `origin`. label: beginning of the error text. Raises `PulsarRefusedError`."""
        try:
            return self.guards.admit(origin).rstrip("/")
        except ValueError as error:
            raise PulsarRefusedError(f"{label}: {error}") from None

    async def _belongs(self, url: str, headers: Mapping[str, str]) -> bool:
        """Whether `url` leads to the server of `base`, or to a broker that Pulsar lists."""
        scheme, place = urlsplit(self.base).scheme, _address(url)
        if place == _address(self.base) or place in self._addresses(scheme):
            return True
        self.list_brokers(api.names(await self._plain(Request("brokers", "GET", "/admin/v2/brokers"), headers)))
        if scheme == "https":  # brokers with both schemes are listed by their http port
            for broker in sorted(self._listed, key=self._secure.__contains__):  # brokers of unknown address first
                if place not in self._addresses(scheme) and _address(f"//{broker}")[0] == place[0]:
                    self.learn(broker, await self._plain(lookup_of(broker), headers))
        return place in self._addresses(scheme)

    def _addresses(self, scheme: str) -> set[tuple[str, int]]:
        """Host and port of each listed broker."""
        return {_address(f"{scheme}://{broker}") for broker in self._listed} | set(map(_address, self._secure.values()))

    def learn(self, broker: str, found: Any) -> str:
        """Remember and return the https base URL of `broker`. found: the answer to its `lookup_of`.

        Empty if the answer has no https URL, or if it names another broker because `broker` has just stopped.
        """
        url = api.https_url(found)
        own, others = _address(f"//{broker}")[0], {_address(f"//{other}")[0] for other in self._listed}
        if not url or _address(url)[0] in others - {own}:
            return ""
        self._secure[broker] = url
        return url

    async def _plain(self, request: Request, headers: Mapping[str, str]) -> Any:
        """Send a request about the cluster. A redirect is an error."""
        status, text, _ = await self._once(request, headers, self._cluster_url().rstrip("/") + request.path)
        if status >= _ERROR:
            raise refusal(request.call, status, self.identity.hide(text), request.label)
        return await self._parsed(request, text)

    async def _parsed(self, request: Request, text: str) -> Any:
        if not text.strip():
            return None
        try:
            return await asyncio.to_thread(json_of, text) if len(text) > LARGE else json_of(text)
        except TooDeepError as error:
            raise PulsarUnavailableError(f"{request.label}: {error}") from None
        except ValueError:
            return text


def lookup_of(broker: str) -> Request:
    """The request for the https address of `broker`: a lookup in its heartbeat namespace."""
    return Request("origin", "GET", f"/lookup/v2/topic/non-persistent/pulsar/{quote(broker, safe=':')}/health")


def _address(url: str) -> tuple[str, int]:
    """Host and port of a URL; port 0 if it is invalid."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return "", 0
    try:
        return host, parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return host, 0
