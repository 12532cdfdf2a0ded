"""`ClientCredentials`: tokens that an OAuth 2 issuer gives to a client (RFC 6749, 4.4), renewed before they end.

A token is renewed on the side: as long as the one there is lives, nobody waits for the issuer, which may hang, but
those whom brokers refused with it. They refuse (401) also somebody they know who lacks a right: what they refuse need
not be over, so it stays in use until there is another one, and is renewed for that less and less often.
The issuer's token endpoint is found by OpenID Connect discovery. Like brokers, it is asked only where the administrator
allows it, and redirects are not followed at all: what is sent is a secret.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from trimtab_operator.pulsar.errors import PulsarError, PulsarRefusedError, PulsarUnavailableError
from trimtab_operator.pulsar.tls import tls_context
from trimtab_pipeline.source import Credentials, CredentialsError

log = logging.getLogger(__name__)

EARLY = 60.0
"""Seconds before its end from which on a token is renewed, but not before four fifths of its life are over."""

LIFE = 300.0
"""Seconds that a token is used for whose issuer does not say how long it lives."""

ASK_AGAIN = 5.0
"""Seconds before the issuer is asked again, after it failed, or brokers did not take what it gave."""

AT_MOST = 300.0
"""What those seconds grow to, doubled by each token in turn that brokers refuse; one that they never do ends that."""

WITHIN = 10.0
"""Seconds that the issuer has for a token, discovery and all."""

_OK, _FAILED = 200, 500
_DISCOVERY = "/.well-known/openid-configuration"
_LONGEST = 300


@dataclass(frozen=True, slots=True, repr=False)
class Client:
    """Who asks the issuer, and what for. Never shown. Raises `CredentialsError` for an odd secret (RFC 6749, A.2)."""

    issuer_url: str
    client_id: str
    client_secret: str
    audience: str = ""
    scope: str = ""

    def __post_init__(self) -> None:
        secret = self.client_secret
        if not secret.isascii() or not secret.isprintable() or secret != secret.strip():
            raise CredentialsError(
                "it holds a line break, a blank at an end or a letter that is not ASCII; put there what the issuer gave"
            )

    def form(self) -> Mapping[str, str]:
        """What is posted to the token endpoint."""
        form = {"grant_type": "client_credentials", "client_id": self.client_id, "client_secret": self.client_secret}
        wishes = {"audience": self.audience, "scope": self.scope}
        return form | {name: value for name, value in wishes.items() if value}


@dataclass(frozen=True, slots=True, repr=False)
class _Token:
    """One token, in use from `begins` to `renew`, valid to `ends` (seconds of the clock)."""

    text: str
    begins: float
    renew: float
    ends: float

    def headers(self) -> Mapping[str, str]:
        """What it is shown by."""
        return {"Authorization": f"Bearer {self.text}"}


@dataclass(slots=True, repr=False)
class ClientCredentials:
    """See the module; an `Identity`. `tls`: for Pulsar; the issuer is believed by the usual authorities, too.

    admit: the URL to ask for a URL; raises `ValueError`. clock: seconds that never jump. Raises `CredentialsError`.
    """

    client: Client
    credentials: Credentials
    admit: Callable[[str], str]
    clock: Callable[[], float] = time.monotonic
    tls: ssl.SSLContext | None = field(init=False)
    secret: bool = field(init=False, default=True)
    _token: _Token | None = None
    _not_before: float = float("-inf")
    _problem: PulsarError | None = None
    _told: deque[str] = field(default_factory=lambda: deque(maxlen=4))
    _renewing: asyncio.Task[None] | None = None
    _patience: float = ASK_AGAIN
    _doubted: bool = False

    def __post_init__(self) -> None:
        self.tls = tls_context(self.credentials) if self.credentials.custom_tls else None

    async def headers(self) -> Mapping[str, str]:
        """The token of the moment; waits for the issuer when there is none. Raises `PulsarError` if it gives none."""
        if self._token is None or self.clock() >= self._token.renew:
            self._begin()
        if self._alive() is None:
            await self._renewed()
        if (token := self._alive()) is None:
            raise self._problem or PulsarUnavailableError(f"issuer {self.client.issuer_url} gave no token yet")
        return token.headers()

    async def proof(self) -> Credentials:
        """The token of the moment, and TLS. Raises `PulsarError`."""
        token = (await self.headers())["Authorization"].removeprefix("Bearer ")
        return replace(self.credentials, bearer_token=token)

    async def refused(self, headers: Mapping[str, str]) -> bool:
        """Whether there is another token than `headers` show; has it renewed if another one could fare better."""
        if (token := self._token) is not None and headers == token.headers():
            self._doubted = True
            if self.clock() - token.begins >= self._patience:
                self._begin()
            await self._renewed()
        return self._token is None or headers != self._token.headers()

    def hide(self, text: str) -> str:
        """Without the client's secret and its tokens."""
        for secret in (self.client.client_secret, *self._told):
            text = Credentials(bearer_token=secret).hide(text)
        return text

    async def aclose(self) -> None:
        """Stop asking the issuer."""
        if (task := self._renewing) is not None:
            task.cancel()
            await asyncio.wait({task})

    def _alive(self) -> _Token | None:
        """The token, if it is valid now."""
        return self._token if self._token is not None and self.clock() < self._token.ends else None

    def _begin(self) -> None:
        """Have the token renewed on the side, unless that is under way, or failed a moment ago."""
        idle = self._renewing is None or self._renewing.done()
        if idle and self.clock() >= self._not_before:
            self._renewing = asyncio.create_task(self._renew(), name="token of the issuer")

    async def _renewed(self) -> None:
        """Until nobody asks the issuer any more. Whoever gives up waiting does not end the asking."""
        if (task := self._renewing) is not None:
            await asyncio.wait({task})

    async def _renew(self) -> None:
        self._not_before = self.clock() + ASK_AGAIN
        try:
            async with asyncio.timeout(WITHIN):
                self._take(await self._asked(self.clock()))
        except TimeoutError:
            self._fail(PulsarUnavailableError(f"issuer {self.client.issuer_url}: no answer within {WITHIN:g} s"))
        except PulsarError as error:
            self._fail(error)

    def _take(self, token: _Token) -> None:
        self._patience = min(2 * self._patience, AT_MOST) if self._doubted else ASK_AGAIN
        self._token, self._doubted, self._problem = token, False, None

    def _fail(self, problem: PulsarError) -> None:
        """Take note of why there is no new token; in the log, too, when that is news: the old one may still do."""
        if str(problem) != str(self._problem):
            log.warning("Pulsar: no new token: %s", problem)
        self._problem, self._not_before = problem, self.clock() + ASK_AGAIN

    async def _asked(self, now: float) -> _Token:
        """A new token. Raises `PulsarError`."""
        context = tls_context(self.credentials, others=True)
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(connector=connector) as session:
            found = await self._json(session, "GET", self.client.issuer_url.rstrip("/") + _DISCOVERY)
            answer = await self._json(session, "POST", str(found.get("token_endpoint") or ""), self.client.form())
        return self._read(answer, now)

    def _read(self, answer: Mapping[str, Any], now: float) -> _Token:
        try:
            text, life = str(answer["access_token"]), float(answer.get("expires_in") or LIFE)
            Credentials(bearer_token=text)
        except (KeyError, TypeError, ValueError, CredentialsError):
            raise PulsarUnavailableError(f"issuer {self.client.issuer_url} gave no usable access_token") from None
        self._told.append(text)
        return _Token(text, now, now + max(life - EARLY, life * 0.8), now + life)

    async def _json(
        self, session: aiohttp.ClientSession, method: str, url: str, form: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        told = f"issuer {self.client.issuer_url}"
        try:
            place = self.admit(url)
        except ValueError as error:
            raise PulsarRefusedError(f"{told}: {error}") from None
        try:
            async with session.request(method, place, data=form, allow_redirects=False) as answer:
                if answer.status != _OK:
                    raise self._refusal(answer.status, await answer.text(errors="replace"), told)
                found = await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            why = self.hide(str(error) or type(error).__name__)
            raise PulsarUnavailableError(f"{told}: {why}") from None
        return found if isinstance(found, dict) else {}

    def _refusal(self, status: int, body: str, told: str) -> PulsarError:
        kind = PulsarUnavailableError if status >= _FAILED else PulsarRefusedError
        return kind(f"{told}: {status} {' '.join(self.hide(body).split())[:_LONGEST]}", status=status)
