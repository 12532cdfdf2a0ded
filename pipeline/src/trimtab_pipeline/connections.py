"""How servers are connected to: who asks, whom TLS believes, and what a connection that failed comes down to.

A server has a time-out for its whole answer, headers and all. The usual one is for each piece, so a byte now and then
would hold up a task for ever.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.utils import DEFAULT_CA_BUNDLE_PATH, get_environ_proxies, prepend_scheme_if_needed, select_proxy
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from trimtab_pipeline.api import Credentials, CredentialsError

LONG = 300
"""Characters of somebody else's text in a message."""
CORRECT_URL = "correct the source's url"
"""What to do about a URL that leads nowhere."""
_PEM = "-----BEGIN"


class Signed(AuthBase):
    """Puts the credentials of the moment on each request; also keeps `requests` from looking for a ``.netrc``."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if authorization := self._credentials.authorization():
            request.headers["Authorization"] = authorization
        request.headers.update(self._credentials.headers)
        return request


class _Timely(io.RawIOBase):
    """What a socket receives until its time-out, which is that for all of it, has passed; then `TimeoutError`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._raw = sock, sock.makefile("rb", buffering=0)
        timeout = sock.gettimeout()
        self._end = None if timeout is None else time.monotonic() + timeout

    def readable(self) -> bool:
        """It is all that can be done with it."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """What comes next."""
        if self._end is not None:
            if (left := self._end - time.monotonic()) <= 0:
                raise TimeoutError("timed out")
            self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()

    def makefile(self, *_: Any) -> io.BufferedReader:
        """Itself with a buffer: how an answer asks a socket to be read."""
        return io.BufferedReader(self)


class _TimelyResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(_Timely(sock), *args, **kwargs)  # type: ignore[arg-type]


class _Connection(HTTPConnection):
    response_class = _TimelyResponse


class _TlsConnection(HTTPSConnection):
    response_class = _TimelyResponse


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


_POOLS = MappingProxyType({"http": _Pool, "https": _TlsPool})


class TimelyAdapter(HTTPAdapter):
    """Connections whose time-out is that of a whole answer. Nothing is tried twice."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Pools of such connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = dict(_POOLS)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """The same by a proxy."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = dict(_POOLS)
        return manager


class TlsAdapter(TimelyAdapter):
    """Connections by a TLS context of ours: `requests` knows no PEM text, and adds its own authorities to others."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Pools whose connections are made by the context."""
        super().init_poolmanager(*args, **kwargs, ssl_context=self._context)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """The same by a proxy."""
        return super().proxy_manager_for(*args, **kwargs, ssl_context=self._context)

    def build_connection_pool_key_attributes(self, *args: Any, **kwargs: Any) -> Any:
        """By host alone: what `requests` would add about TLS is in the context."""
        host, _ = super().build_connection_pool_key_attributes(*args, **kwargs)
        return host, {}

    def cert_verify(self, *_: Any, **__: Any) -> None:
        """Nothing to add: the context knows whom to believe."""


class StrictSession(requests.Session):
    """Asks with `credentials`, follows no redirect, and reads no body unasked.

    Bodies are read by whoever asks: those of redirects, which `requests` would read whole, by nobody.
    """

    def __init__(self, credentials: Credentials) -> None:
        super().__init__()
        self.auth, self.stream = Signed(credentials), True

    def connect_to(self, url: str, credentials: Credentials) -> None:
        """Choose how `url` and what is below it is connected to. Raises `CredentialsError`."""
        self.mount(url, TlsAdapter(tls_context(credentials)) if credentials.custom_tls else TimelyAdapter())

    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002  named so by `requests`
        """None: it is an answer like others."""
        return None


def tls_context(credentials: Credentials) -> ssl.SSLContext:
    """A context that believes `credentials.ca` alone (else the usual authorities) and shows the client's certificate.

    Raises `CredentialsError` naming the part that can't be used.
    """
    ca = _pem(credentials.ca, "ca")
    try:
        context = ssl.create_default_context(cadata=ca or None)
        if not credentials.ca:
            context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
    except (ssl.SSLError, ValueError):
        raise CredentialsError("ca holds no certificate in PEM form") from None
    if credentials.certificate:
        try:
            _present(context, _pem(credentials.certificate, "certificate"), _pem(credentials.key, "key"))
        except ssl.SSLError as error:
            raise CredentialsError(f"certificate and key are no pair in PEM form ({error.reason})") from None
    return context


def _present(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Show `certificate`; OpenSSL takes it from a file only, which is gone again before anybody could look for it."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:  # nobody else may read it
        both.write(f"{certificate}\n{key}\n")
        both.flush()
        context.load_cert_chain(both.name, password="")  # an empty one, or OpenSSL would ask at the terminal


def _pem(text: str, what: str) -> str:
    """PEM text as it is, else that of the file of that name."""
    if _PEM in text or not text:
        return text
    try:
        return Path(text).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no PEM"
        raise CredentialsError(f"{what} file {text} can't be read: {why}") from None


def proxy_of(url: str) -> str:
    """The proxy that the environment names for `url`, by the rules of `requests`; empty for none."""
    found = select_proxy(url, get_environ_proxies(url))
    return str(prepend_scheme_if_needed(found, "http")) if found else ""  # type: ignore[no-untyped-call]


def no_url(error: ValueError) -> str:
    """What is said of a URL that can not be asked."""
    return f"can't be asked: {error}; {CORRECT_URL}"


def cause_of(
    error: requests.RequestException, timeout: float, credentials: Credentials, field: str = "the source's timeout"
) -> str:
    """What happened, and what to do about it; `requests` wraps the cause in layers of others.

    field: where `timeout` (s) comes from. Causes come in this order, as urllib3 counts every connection that could not
    be made among the time-outs.
    """
    causes = list(_causes(error))
    if any(isinstance(cause, urllib3.exceptions.NameResolutionError) for cause in causes):
        return f"has a host name that can't be resolved; {CORRECT_URL}"
    if (distrust := next((c for c in causes if isinstance(c, ssl.SSLCertVerificationError)), None)) is not None:
        return f"has a certificate that can't be believed ({distrust.verify_message}); correct the source's ca"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return f"refused the connection; start the server, or {CORRECT_URL}"
    if any(isinstance(cause, (requests.Timeout, urllib3.exceptions.TimeoutError)) for cause in causes):
        return f"did not answer within {timeout:g} s; raise {field}, or look at the server's load"
    if isinstance(error, ValueError):  # how `requests` tells of a URL that is none
        return credentials.hide(no_url(error))
    return f"can't be read: {credentials.hide(str(causes[-1]))[:LONG]}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error`, and what it was made from, outermost first."""
    seen: list[BaseException] = [error]
    for cause in seen:
        yield cause
        inner = (cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args)
        seen += [other for other in inner if isinstance(other, BaseException) and other not in seen]
