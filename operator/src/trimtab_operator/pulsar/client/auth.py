"""How Trimtab authenticates to Pulsar: bearer tokens, OAuth 2 client credentials (RFC 6749, 4.4), TLS.

A token is renewed in the background, before it expires. While the old token is valid, a request waits for the issuer
only if a broker refused the request with the old token. Brokers also answer 401 to a known role without the permission.
So a refused token stays in use until there is a new one, and the pause between two renewals grows with each refused
token.

OpenID Connect discovery finds the issuer's token endpoint. The discovery document must name the issuer by the URL that
was used, and https must not lead to http. The issuer's URL must be on the administrator's allow-list. Redirects are not
followed, because the request contains a secret. Never log credentials.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from trimtab_operator.pulsar.client.errors import PulsarError, PulsarRefusedError, PulsarUnavailableError
from trimtab_operator.pulsar.client.wire import route_to, text_of
from trimtab_pipeline.api import NO_CREDENTIALS, Credentials, CredentialsError
from trimtab_pipeline.prometheus.response_limits import json_of


def tls_context(credentials: Credentials, *, others: bool = False) -> ssl.SSLContext:
    """A TLS context that trusts only `credentials.ca` (default: well-known authorities) and has the client certificate.

    others: trust well-known authorities as well, and omit the client certificate. Raises `CredentialsError`.
    """
    try:
        context = ssl.create_default_context(cadata=credentials.ca or None)
        if others:
            context.load_default_certs()
    except (ssl.SSLError, ValueError):
        raise CredentialsError("ca holds no certificate in PEM form") from None
    if credentials.certificate and not others:
        _present(context, credentials)
    return context


def _present(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Add the client certificate. OpenSSL needs a file: only this user can read it, and it is removed immediately."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{credentials.certificate}\n{credentials.key}\n")
        file.flush()
        try:
            context.load_cert_chain(file.name, password="")  # without a password OpenSSL would ask at the terminal
        except ssl.SSLError as error:
            raise CredentialsError(f"certificate and key are not a pair in PEM form ({error.reason})") from None


log = logging.getLogger(__name__)


RENEW_BEFORE = 60.0
"""Seconds before expiry at which a token is renewed, but never before four fifths of its lifetime have passed."""


DEFAULT_LIFETIME = 300.0
"""Seconds that a token is valid if the issuer does not say."""


RETRY_AFTER = 5.0
"""Seconds before the issuer is asked again, after it failed or brokers refused its token."""


LONGEST_RETRY = 300.0
"""Maximum of this pause, in seconds. Each refused token in a row doubles the pause. An accepted token resets it."""


ISSUER_TIMEOUT = 10.0
"""Time limit for getting a token, discovery included, in seconds."""


LARGEST = 2**20
"""Maximum size of one answer, in bytes."""


_OK, _FAILED = 200, 500

_PORTS = {"http": 80, "https": 443}

_DISCOVERY = "/.well-known/openid-configuration"

_LONGEST = 300


@dataclass(frozen=True, slots=True, repr=False)
class Client:
    """Client credentials for the issuer. Never log them. Raises `CredentialsError` for a bad secret (RFC 6749, A.2)."""

    issuer_url: str
    client_id: str
    client_secret: str
    audience: str = ""
    scope: str = ""

    def __post_init__(self) -> None:
        secret = self.client_secret
        if not secret.isascii() or not secret.isprintable() or secret != secret.strip():
            raise CredentialsError(
                "it has a line break, a blank at an end or a non-ASCII character; copy the secret from the issuer"
            )

    def form(self) -> Mapping[str, str]:
        """The form to post to the token endpoint."""
        form = {"grant_type": "client_credentials", "client_id": self.client_id, "client_secret": self.client_secret}
        optional = {"audience": self.audience, "scope": self.scope}
        return form | {name: value for name, value in optional.items() if value}


@dataclass(frozen=True, slots=True, repr=False)
class _Token:
    """A token. begins, renew, ends: seconds of the clock from which it is used, renewed, and no longer valid."""

    text: str
    begins: float
    renew: float
    ends: float

    def headers(self) -> Mapping[str, str]:
        """The header that carries the token."""
        return {"Authorization": f"Bearer {self.text}"}


@dataclass(slots=True, repr=False)
class ClientCredentials:
    """Authenticates with tokens from an issuer.

    tls: context for brokers; the issuer's certificate may also be from a well-known authority. admit: checks a URL and
    returns it in the form to use; raises `ValueError` if it is not allowed. clock: seconds of a monotonic clock. Raises
    `CredentialsError`.
    """

    client: Client
    credentials: Credentials
    admit: Callable[[str], str]
    clock: Callable[[], float] = time.monotonic
    tls: ssl.SSLContext | None = field(init=False)
    _token: _Token | None = None
    _not_before: float = float("-inf")
    _problem: PulsarError | None = None
    _issued: deque[str] = field(default_factory=lambda: deque(maxlen=4))
    _renewing: asyncio.Task[None] | None = None
    _retry_after: float = RETRY_AFTER
    _was_refused: bool = False

    def __post_init__(self) -> None:
        self.tls = tls_context(self.credentials) if self.credentials.custom_tls else None

    async def headers(self) -> Mapping[str, str]:
        """The header with the current token; waits for the issuer if there is none. Raises `PulsarError`."""
        if self._token is None or self.clock() >= self._token.renew:
            self._start_renewal()
        if self._valid() is None:
            await self._wait_for_renewal()
        if (token := self._valid()) is None:
            raise self._problem or PulsarUnavailableError(f"issuer {self.client.issuer_url} has given no token yet")
        return token.headers()

    async def proof(self) -> Credentials:
        """The current token, and the TLS settings. Raises `PulsarError`."""
        token = (await self.headers())["Authorization"].removeprefix("Bearer ")
        return replace(self.credentials, bearer_token=token)

    async def refused(self, headers: Mapping[str, str]) -> bool:
        """Whether there is a newer token than the refused one in `headers`. Renews the token if that may help."""
        if (token := self._token) is not None and headers == token.headers():
            self._was_refused = True
            if self.clock() - token.begins >= self._retry_after:
                self._start_renewal()
            await self._wait_for_renewal()
        return self._token is None or headers != self._token.headers()

    def hide(self, text: str) -> str:
        """Remove the client's secret and its tokens from `text`."""
        for secret in (self.client.client_secret, *self._issued):
            text = Credentials(bearer_token=secret).hide(text)
        return text

    async def aclose(self) -> None:
        """Stop the renewal."""
        if (task := self._renewing) is not None:
            task.cancel()
            await asyncio.wait({task})

    def _valid(self) -> _Token | None:
        """The token if it is valid now."""
        return self._token if self._token is not None and self.clock() < self._token.ends else None

    def _start_renewal(self) -> None:
        """Renew the token in the background, unless a renewal runs or has just failed."""
        idle = self._renewing is None or self._renewing.done()
        if idle and self.clock() >= self._not_before:
            self._renewing = asyncio.create_task(self._renew(), name="token of the issuer")

    async def _wait_for_renewal(self) -> None:
        """Wait until the renewal ends. Cancelling the wait does not cancel the renewal."""
        if (task := self._renewing) is not None:
            await asyncio.wait({task})

    async def _renew(self) -> None:
        self._not_before = self.clock() + RETRY_AFTER
        try:
            async with asyncio.timeout(ISSUER_TIMEOUT):
                self._take(await self._request_token(self.clock()))
        except TimeoutError:
            self._fail(
                PulsarUnavailableError(f"issuer {self.client.issuer_url}: no answer within {ISSUER_TIMEOUT:g} s")
            )
        except PulsarError as error:
            self._fail(error)

    def _take(self, token: _Token) -> None:
        self._retry_after = min(2 * self._retry_after, LONGEST_RETRY) if self._was_refused else RETRY_AFTER
        self._token, self._was_refused, self._problem = token, False, None

    def _fail(self, problem: PulsarError) -> None:
        """Record why there is no new token. Log a new problem, as requests succeed while the old token is valid."""
        if str(problem) != str(self._problem):
            log.warning("Pulsar: no new token: %s", problem)
        self._problem, self._not_before = problem, self.clock() + RETRY_AFTER

    async def _request_token(self, now: float) -> _Token:
        """Request a new token. Raises `PulsarError`."""
        context = tls_context(self.credentials, others=True)
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(connector=connector) as session:
            found = await self._json(session, "GET", self.client.issuer_url.rstrip("/") + _DISCOVERY)
            answer = await self._json(session, "POST", self._endpoint(found), self.client.form())
        return self._read(answer, now)

    def _endpoint(self, found: Mapping[str, Any]) -> str:
        """The token endpoint from the discovery document. Raises `PulsarRefusedError`."""
        url, label = self.client.issuer_url, f"issuer {self.client.issuer_url}"
        issuer, endpoint = str(found.get("issuer") or ""), str(found.get("token_endpoint") or "")
        if _normalized(issuer) not in {_normalized(url), _normalized(self._admitted(url))}:
            raise PulsarRefusedError(
                f"{label} names itself {self.hide(issuer)[:_LONGEST] or 'nothing'}: issuerUrl must be the same"
            )
        if not endpoint:
            raise PulsarRefusedError(f"{label} names no token_endpoint: check what issuerUrl leads to")
        shown = self.hide(endpoint)[:_LONGEST]
        try:
            plain = urlsplit(issuer).scheme == "https" != urlsplit(endpoint).scheme
        except ValueError:
            raise PulsarRefusedError(
                f"{label}: token_endpoint {shown} is not a URL: correct it at the issuer"
            ) from None
        if plain:
            raise PulsarRefusedError(f"{label}: token_endpoint {shown} must be https, too: correct it at the issuer")
        return endpoint

    def _admitted(self, url: str) -> str:
        """The URL to use for `url`. Raises `PulsarRefusedError`."""
        try:
            return self.admit(url)
        except ValueError as error:
            raise PulsarRefusedError(f"issuer {self.client.issuer_url}: {error}") from None

    def _read(self, answer: Mapping[str, Any], now: float) -> _Token:
        try:
            text, life = answer["access_token"], float(answer.get("expires_in") or DEFAULT_LIFETIME)
            Credentials(bearer_token=_text(text))
        except (KeyError, OverflowError, TypeError, ValueError):
            raise PulsarUnavailableError(f"issuer {self.client.issuer_url} gave no usable access_token") from None
        if not 0 < life < math.inf:
            raise PulsarUnavailableError(f"issuer {self.client.issuer_url}: expires_in {life:g} must be above 0 s")
        self._issued.append(text)
        return _Token(text, now, now + max(life - RENEW_BEFORE, life * 0.8), now + life)

    async def _json(
        self, session: aiohttp.ClientSession, method: str, url: str, form: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        label, place = f"issuer {self.client.issuer_url}", self._admitted(url)
        route = route_to(place)
        sent = session.request(
            method,
            place,
            data=form,
            headers=route.headers,
            proxy=route.proxy,
            proxy_headers=route.tunnel,
            allow_redirects=False,
        )
        try:
            async with sent as answer:
                text = await text_of(answer, LARGEST)
                if answer.status != _OK:
                    raise self._refusal(answer.status, text, label)
                found = json_of(text)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            why = self.hide(str(error) or type(error).__name__)
            raise PulsarUnavailableError(f"{label}: {why}") from None
        return found if isinstance(found, dict) else {}

    def _refusal(self, status: int, body: str, label: str) -> PulsarError:
        kind = PulsarUnavailableError if status >= _FAILED else PulsarRefusedError
        return kind(f"{label}: {status} {' '.join(self.hide(body).split())[:_LONGEST]}", status=status)


def _normalized(url: str) -> tuple[str, str, int, str]:
    """A URL for comparison: the default port and the last slash are optional."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0), parts.path.rstrip("/")
    except ValueError:
        return url, "", 0, ""


class Bearer:
    """Authenticates with a fixed token, or without any, and with the TLS of `credentials`.

    on_refused: called when brokers refuse the token, because its Secret may have a new one. Raises `CredentialsError`.
    """

    def __init__(
        self, credentials: Credentials = NO_CREDENTIALS, on_refused: Callable[[], None] = lambda: None
    ) -> None:
        self._credentials, self._on_refused = credentials, on_refused
        self.tls = tls_context(credentials) if credentials.custom_tls else None

    async def headers(self) -> Mapping[str, str]:
        """The header with the token, if there is one."""
        authorization = self._credentials.authorization()
        return {"Authorization": authorization} if authorization else {}

    async def proof(self) -> Credentials:
        """The fixed credentials."""
        return self._credentials

    async def refused(self, headers: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Call `on_refused`. There is no other token."""
        self._on_refused()
        return False

    async def aclose(self) -> None:
        """Do nothing: there is no background work."""

    def hide(self, text: str) -> str:
        """Remove the token from `text`."""
        return self._credentials.hide(text)


Identity = Bearer | ClientCredentials
"""Credentials for requests to brokers."""


def _text(value: Any) -> str:
    """Return `value` if it is a non-empty string. Raises `TypeError`."""
    if not isinstance(value, str) or not value:
        raise TypeError(type(value))
    return value
