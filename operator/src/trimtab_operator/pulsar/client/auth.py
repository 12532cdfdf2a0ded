"""How Trimtab authenticates to Pulsar: bearer tokens, OAuth 2 client credentials (RFC 6749, 4.4), TLS.

A token is renewed in the background, before it ends. While the old one is valid no request waits for the issuer,
except those that brokers refused with it. Brokers answer 401 also to a known role that lacks a right. So a refused
token stays in use until there is another one, and is renewed less and less often for that reason.

The issuer's token endpoint is found by OpenID Connect discovery. The issuer must call itself what it was asked as, and
https must not lead to http. The issuer is asked only where the administrator allows it. Redirects are not followed, as
the request holds a secret. Nothing here is ever shown.
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
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiohttp

from trimtab_operator.pulsar.client.errors import PulsarError, PulsarRefusedError, PulsarUnavailableError
from trimtab_operator.pulsar.client.wire import text_of, way_to
from trimtab_pipeline.api import NO_CREDENTIALS, Credentials, CredentialsError
from trimtab_pipeline.bodies import json_of


def tls_context(credentials: Credentials, *, others: bool = False) -> ssl.SSLContext:
    """A context that believes `credentials.ca` alone (else the usual authorities) and shows the client's certificate.

    others: believe the usual authorities as well, and show nothing. Raises `CredentialsError`.
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
    """Show the certificate; OpenSSL reads it from a file only, which nobody else may read, and which goes at once."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{credentials.certificate}\n{credentials.key}\n")
        file.flush()
        try:
            context.load_cert_chain(file.name, password="")  # an empty one, or OpenSSL would ask at the terminal
        except ssl.SSLError as error:
            raise CredentialsError(f"certificate and key are no pair in PEM form ({error.reason})") from None


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


LARGEST = 2**20
"""Bytes of one answer."""


_OK, _FAILED = 200, 500

_PORTS = {"http": 80, "https": 443}

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
        optional = {"audience": self.audience, "scope": self.scope}
        return form | {name: value for name, value in optional.items() if value}


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
            answer = await self._json(session, "POST", self._endpoint(found), self.client.form())
        return self._read(answer, now)

    def _endpoint(self, found: Mapping[str, Any]) -> str:
        """Where tokens are given, as discovery tells. Raises `PulsarRefusedError`."""
        url, told = self.client.issuer_url, f"issuer {self.client.issuer_url}"
        issuer, endpoint = str(found.get("issuer") or ""), str(found.get("token_endpoint") or "")
        if _plainly(issuer) not in {_plainly(url), _plainly(self._admitted(url))}:
            raise PulsarRefusedError(
                f"{told} calls itself {self.hide(issuer)[:_LONGEST] or 'nothing'}: issuerUrl must be the same"
            )
        if not endpoint:
            raise PulsarRefusedError(f"{told} names no token_endpoint: see what issuerUrl leads to")
        told_at = self.hide(endpoint)[:_LONGEST]
        try:
            plain = urlsplit(issuer).scheme == "https" != urlsplit(endpoint).scheme
        except ValueError:
            raise PulsarRefusedError(f"{told}: token_endpoint {told_at} is no URL: correct it at the issuer") from None
        if plain:
            raise PulsarRefusedError(f"{told}: token_endpoint {told_at} must be https, too: correct it at the issuer")
        return endpoint

    def _admitted(self, url: str) -> str:
        """The URL to ask for `url`. Raises `PulsarRefusedError`."""
        try:
            return self.admit(url)
        except ValueError as error:
            raise PulsarRefusedError(f"issuer {self.client.issuer_url}: {error}") from None

    def _read(self, answer: Mapping[str, Any], now: float) -> _Token:
        try:
            text, life = answer["access_token"], float(answer.get("expires_in") or LIFE)
            Credentials(bearer_token=_text(text))
        except (KeyError, TypeError, ValueError, CredentialsError):
            raise PulsarUnavailableError(f"issuer {self.client.issuer_url} gave no usable access_token") from None
        if not 0 < life < math.inf:
            raise PulsarUnavailableError(f"issuer {self.client.issuer_url}: expires_in {life:g} must be above 0 s")
        self._told.append(text)
        return _Token(text, now, now + max(life - EARLY, life * 0.8), now + life)

    async def _json(
        self, session: aiohttp.ClientSession, method: str, url: str, form: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        told, place = f"issuer {self.client.issuer_url}", self._admitted(url)
        way = way_to(place)
        sent = session.request(
            method,
            place,
            data=form,
            headers=way.headers,
            proxy=way.proxy,
            proxy_headers=way.tunnel,
            allow_redirects=False,
        )
        try:
            async with sent as answer:
                text = await text_of(answer, LARGEST)
                if answer.status != _OK:
                    raise self._refusal(answer.status, text, told)
                found = json_of(text)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            why = self.hide(str(error) or type(error).__name__)
            raise PulsarUnavailableError(f"{told}: {why}") from None
        return found if isinstance(found, dict) else {}

    def _refusal(self, status: int, body: str, told: str) -> PulsarError:
        kind = PulsarUnavailableError if status >= _FAILED else PulsarRefusedError
        return kind(f"{told}: {status} {' '.join(self.hide(body).split())[:_LONGEST]}", status=status)


def _plainly(url: str) -> tuple[str, str, int, str]:
    """A URL as it compares: an issuer may or may not write the port that is usual, and the last slash."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0), parts.path.rstrip("/")
    except ValueError:
        return url, "", 0, ""


def _nothing() -> None:
    """Whoever wants to know may listen."""


class Identity(Protocol):
    """What proves to brokers who asks."""

    async def headers(self) -> Mapping[str, str]:
        """Headers of the next request. Raises `PulsarError` when a token can't be had."""

    async def proof(self) -> Credentials:
        """The same for whoever asks beside this client, TLS and all. Raises `PulsarError`."""

    async def refused(self, headers: Mapping[str, str]) -> bool:
        """Brokers did not take these `headers` (401): whether there are others by now."""

    async def aclose(self) -> None:
        """End what goes on beside requests."""

    def hide(self, text: str) -> str:
        """`text` without anything secret that it repeats."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What TLS takes besides the usual authorities; None for nothing."""

    @property
    def secret(self) -> bool:
        """Whether anything secret is sent."""


class Bearer:
    """Asks with a token that does not change, or without any; TLS as `credentials` say.

    on_refused: called when brokers don't take the token: there may be a new one where it came from. Raises
    `CredentialsError`.
    """

    def __init__(self, credentials: Credentials = NO_CREDENTIALS, on_refused: Callable[[], None] = _nothing) -> None:
        self._credentials, self._on_refused = credentials, on_refused
        self.tls = tls_context(credentials) if credentials.custom_tls else None
        self.secret = credentials != NO_CREDENTIALS

    async def headers(self) -> Mapping[str, str]:
        """The token, if there is one."""
        authorization = self._credentials.authorization()
        return {"Authorization": authorization} if authorization else {}

    async def proof(self) -> Credentials:
        """As they are."""
        return self._credentials

    async def refused(self, headers: Mapping[str, str]) -> bool:  # noqa: ARG002
        """There are no others."""
        self._on_refused()
        return False

    async def aclose(self) -> None:
        """Nothing does."""

    def hide(self, text: str) -> str:
        """Without the token."""
        return self._credentials.hide(text)


def _text(value: Any) -> str:
    """`value`, which must be text and not empty. Raises `TypeError`."""
    if not isinstance(value, str) or not value:
        raise TypeError(type(value))
    return value
