"""Credentials for a source of load: they identify us to the source, and the source to us. They are never shown."""

from __future__ import annotations

import base64
import html
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, quote_plus

_HIDDEN = "***"
_HEADER = r"[A-Za-z0-9-]+"
_QUERY_STRING = re.compile(r"\?[\w.%\[\]-]+=[^\s\"'<>]*")
_SHORTEST = 3  # characters of a value that is hidden; a shorter one is in many words
_USUAL = ("true", "false")


class CredentialsError(ValueError):
    """Unusable credentials. The message names the wrong part and the fix, never the content."""


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """Credentials that identify us to a server, and the server to us. Never shown: neither printed nor logged.

    bearer_token:      sent as ``Authorization: Bearer``; `bearer_token_file` is read for every query instead, as tokens
                       in files rotate. The file must exist where the Spark tasks run.
    username, password: HTTP Basic.
    certificate, key:  our identity in TLS; `ca`: the only trusted authorities, instead of the usual ones. Each is PEM
                       text, or the path of a PEM file (read again for every shard).
    headers:           more headers for each query, such as a tenant's ``X-Scope-OrgID``.
    hidden:            further texts that messages must not show, such as values in URLs. They are not sent.
    Raises `CredentialsError` for parts that exclude each other, and for text that is invalid in an HTTP header.
    """

    bearer_token: str = ""
    bearer_token_file: str = ""
    username: str = ""
    password: str = ""
    certificate: str = ""
    key: str = ""
    ca: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    hidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ways = (self.bearer_token, self.bearer_token_file, self.username or self.password)
        if sum(map(bool, ways)) > 1:
            raise CredentialsError("there are several of bearer token, token file and user name; give one")
        if bool(self.certificate) != bool(self.key):
            raise CredentialsError("a client certificate needs its key, and a key its certificate; give both or none")
        if ":" in self.username:
            raise CredentialsError("the user name holds a colon, which HTTP Basic can't carry")
        for name, value in (("bearer token", self.bearer_token), *self.headers):
            _check_header(name, value)
        if odd := [name for name, _ in self.headers if not re.fullmatch(_HEADER, name)]:
            raise CredentialsError(f"{odd[0]!r} is not an HTTP header name: use letters, digits and dashes")

    def __repr__(self) -> str:
        given = ", ".join(f.name for f in fields(self) if f.name != "hidden" and getattr(self, f.name))
        return f"<Credentials: {given or 'none'}>"

    @property
    def custom_tls(self) -> bool:
        """Whether TLS needs more than the usual authorities."""
        return bool(self.ca or self.certificate)

    def authorization(self) -> str:
        """Value of the ``Authorization`` header, empty for none. Reads the token's file; raises `CredentialsError`."""
        if self.username or self.password:
            return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        token = self.bearer_token or (_token_in(self.bearer_token_file) if self.bearer_token_file else "")
        return f"Bearer {token}" if token else ""

    def hiding(self, values: Iterable[str]) -> Credentials:
        """These credentials, which hide some `values`, too. Values that are usual words or shorter stay visible."""
        rare = tuple(value for value in values if len(value) >= _SHORTEST and value not in _USUAL)
        return replace(self, hidden=(*self.hidden, *rare))

    def lapse(self, now: float) -> str:
        """Why the token is not valid at `now`; see `lapse_of`."""
        try:
            return lapse_of(self.authorization(), now)
        except CredentialsError:
            return ""

    def hide(self, text: str) -> str:
        """`text` without the secrets and the query strings that it repeats: servers often quote what they refuse.

        Call it before you shorten the text: it does not recognize a part of a secret.
        """
        spelt = {spelling for secret in filter(None, self._secrets()) for spelling in _spellings(secret)}
        for secret in sorted(spelt, key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return _QUERY_STRING.sub(f"?{_HIDDEN}", text)

    def _secrets(self) -> Iterator[str]:
        yield self.password
        yield from self.hidden
        yield from (value for _, value in self.headers)
        try:
            yield self.authorization().partition(" ")[2]
        except CredentialsError:
            return  # there is no token, so no text can repeat it


def _spellings(secret: str) -> Iterator[str]:
    """Spellings of `secret` in plain text, a Python or JSON string, an HTML page (each also as Go writes it), a URL."""
    for text in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]):
        yield text
        yield "".join(f"\\u{ord(letter):04x}" if letter in "<>&" else letter for letter in text)
    page = html.escape(secret, quote=False)
    yield from (page, html.escape(secret), page.replace('"', "&#34;").replace("'", "&#39;"))
    yield from (quote(secret, safe=""), quote(secret), quote_plus(secret))


def _check_header(name: str, value: str) -> None:
    """Refuse a value for which the library `requests` would raise an error that shows the value."""
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise CredentialsError(
            f"{name} holds a line break, a blank at its start or end, or a character that no HTTP header can carry"
        )


def _token_in(path: str) -> str:
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise CredentialsError(f"bearer token file {path} can't be read: {why}") from None
    _check_header(f"bearer token file {path}", token)
    return token


def lapse_of(token: str, now: float) -> str:
    """Why the token (JWT) is not valid at `now` (epoch s), by its own ``exp`` and ``nbf``; empty if it does not say so.

    Nothing is verified. Other tokens and the value of an ``Authorization`` header are read, too.
    """
    _, _, claims = token.rpartition(" ")[2].partition(".")
    try:
        found = json.loads(base64.urlsafe_b64decode(claims.partition(".")[0] + "=="))
        times = {name: float(found[name]) for name in ("exp", "nbf") if type(found.get(name)) in (int, float)}
        if now >= times.get("exp", math.inf):
            return f"the token expired at {datetime.fromtimestamp(times['exp'], UTC):%Y-%m-%dT%H:%M:%SZ}"
        if now < times.get("nbf", -math.inf):
            return f"the token is not valid before {datetime.fromtimestamp(times['nbf'], UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, RecursionError, AttributeError, OverflowError, OSError):
        return ""
    return ""


NO_CREDENTIALS = Credentials()
"""For a server that needs no credentials."""
