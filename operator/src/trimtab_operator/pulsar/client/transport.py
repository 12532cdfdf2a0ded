"""`Transport`: one request to Pulsar's admin REST, redirects followed, with all that guards it.

Redirects (307) keep the method, and are followed to brokers that Pulsar lists, at addresses an administrator allows,
and nowhere else: a token must not reach a stranger. Nothing is tried twice, but for a 401 whose token was out of date,
which was not carried out.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from yarl import URL

from trimtab_operator.pulsar.budget import Budget
from trimtab_operator.pulsar.errors import PulsarRefusedError, PulsarUnavailableError
from trimtab_operator.pulsar.identity import Bearer, Identity
from trimtab_operator.pulsar.refusals import refusal

HOPS = 6
"""Redirects that one request follows; from any broker to the leader and on to the owner are two."""

LARGE = 1_000_000
"""Bytes from which on an answer is read off the event loop."""

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
        turn = self._turn
        try:
            async with asyncio.timeout(self.timeout):
                return await self._follow(request, headers, (at or self._door()).rstrip("/") + request.path)
        except TimeoutError:
            self._turn = self._turn if at else turn + 1
            told = f"{self._told(request)}: no answer within {self.timeout:g} s"
            raise PulsarUnavailableError(told) from None
        except PulsarUnavailableError as error:
            self._turn = self._turn if at or error.status else turn + 1
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
            return urlsplit(urljoin(at, location)).netloc
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
                url = await self._admitted(request, headers, urljoin(url, location))
            elif status >= _ERROR:
                raise refusal(request.call, status, self.identity.hide(text), self._told(request))
            else:
                return await _parsed(text), url
        raise PulsarUnavailableError(f"{self._told(request)}: more than {HOPS} redirects")

    async def _once(self, request: Request, headers: Mapping[str, str], url: str) -> tuple[int, str, str]:
        kind = {} if request.body is None else {"Content-Type": "application/json"}
        data = None if request.body is None else json.dumps(request.body)
        if request.writes:
            self.guards.fence(self._told(request))
        begun, code = time.monotonic(), "error"
        try:
            sent = self.session.request(
                request.method,
                URL(url, encoded=True),
                headers={**headers, **kind},
                data=data,
                allow_redirects=False,
                skip_auto_headers=["Content-Type"],  # Pulsar refuses (415) a type it does not expect without a body
            )
            async with sent as answer:
                text = await answer.text(errors="replace")
                code = str(answer.status)
                return answer.status, text, answer.headers.get("Location", "")
        except (aiohttp.ClientError, OSError) as error:
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
        if parts.hostname != base.hostname and parts.hostname not in self._hosts():
            found, _ = await self._plain(Request("brokers", "GET", "/admin/v2/brokers"), headers)
            self.list_brokers(found or ())
            if parts.hostname not in self._hosts():
                raise PulsarRefusedError(f"{place}, which Pulsar does not list as a broker")
        origin = self.admitted(f"{parts.scheme}://{parts.netloc}", place)
        return origin + parts.path + (f"?{parts.query}" if parts.query else "")

    def admitted(self, origin: str, told: str) -> str:
        """The base URL to ask for `origin`. told: what for. Raises `PulsarRefusedError`."""
        try:
            return self.guards.admit(origin).rstrip("/")
        except ValueError as error:
            raise PulsarRefusedError(f"{told}: {error}") from None

    def _hosts(self) -> set[str]:
        return {str(urlsplit(f"//{broker}").hostname) for broker in self._listed}

    async def _plain(self, request: Request, headers: Mapping[str, str]) -> tuple[Any, str]:
        """The answer to a request that nobody redirects."""
        status, text, _ = await self._once(request, headers, self._door().rstrip("/") + request.path)
        if status >= _ERROR:
            raise refusal(request.call, status, self.identity.hide(text), self._told(request))
        return await _parsed(text), self.base

    def _told(self, request: Request) -> str:
        return f"{request.method} {request.path.partition('?')[0]}"


async def _parsed(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return await asyncio.to_thread(json.loads, text) if len(text) > LARGE else json.loads(text)
    except ValueError:
        return text
