"""Connections to servers: credentials, trusted certificate authorities, and the cause of a failed connection.

The time-out covers a server's whole answer, including headers. The usual time-out of `requests` covers each piece, so a
server that sends a byte from time to time could block a task without end.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator, Sequence
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
from trimtab_pipeline.prometheus.response_limits import joined
from trimtab_pipeline.tls_faults import TlsFields, tls_advice

LONG = 300
"""Maximum number of characters of a server's text in a message."""
CORRECT_URL = "correct the source's url"
"""Fix for a URL that leads nowhere."""
_PEM = "-----BEGIN"
_PACKED = 2**18  # most bytes of a compressed body that are unpacked at once


class Signed(AuthBase):
    """Adds the current credentials to each request; also keeps `requests` from reading a ``.netrc``."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if authorization := self._credentials.authorization():
            request.headers["Authorization"] = authorization
        request.headers.update(self._credentials.headers)
        return request


class _Timely(io.RawIOBase):
    """Reads from a socket. Once its time-out for the whole answer has passed, reading raises `TimeoutError`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._raw = sock, sock.makefile("rb", buffering=0)
        timeout = sock.gettimeout()
        self._end = None if timeout is None else time.monotonic() + timeout

    def readable(self) -> bool:
        """Always true: it can only be read."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read the next bytes into `buffer`."""
        if self._end is not None:
            if (left := self._end - time.monotonic()) <= 0:
                raise TimeoutError("timed out")
            self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Release the socket."""
        self._raw.close()
        super().close()

    def makefile(self, *_: Any) -> io.BufferedReader:
        """This reader with a buffer. An HTTP response calls this method of its socket."""
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
    """Connections whose time-out covers a whole answer, without retries."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Create pools of connections whose time-out covers a whole answer."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = dict(_POOLS)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Create pools of connections to a proxy, with the same time-out."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = dict(_POOLS)
        return manager


class TlsAdapter(TimelyAdapter):
    """Connections with our own TLS context: `requests` accepts no PEM text, and adds its own authorities to ours."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Create pools whose connections use the context."""
        super().init_poolmanager(*args, **kwargs, ssl_context=self._context)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Create pools for a proxy, whose connections use the context."""
        return super().proxy_manager_for(*args, **kwargs, ssl_context=self._context)

    def build_connection_pool_key_attributes(self, *args: Any, **kwargs: Any) -> Any:
        """The key without the TLS settings of `requests`: the context holds them."""
        host, _ = super().build_connection_pool_key_attributes(*args, **kwargs)
        return host, {}

    def cert_verify(self, *_: Any, **__: Any) -> None:
        """Do nothing: the context holds the trusted authorities."""


class StrictSession(requests.Session):
    """A session with `credentials` that follows no redirects and leaves bodies to the caller.

    The bodies of redirects, which `requests` would read whole, stay unread.
    """

    def __init__(self, credentials: Credentials) -> None:
        super().__init__()
        self.auth, self.stream = Signed(credentials), True

    def connect_to(self, url: str, credentials: Credentials) -> None:
        """Set up the connections for `url` and the paths below it. Raises `CredentialsError`."""
        self.mount(url, TlsAdapter(tls_context(credentials)) if credentials.custom_tls else TimelyAdapter())

    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002  named so by `requests`
        """None: a redirect is treated like any other answer."""
        return None


def body_of(response: requests.Response, largest: int, *, piece: int) -> bytes:
    """The whole body, read in pieces of `piece` bytes; smaller ones if it is compressed. Raises `TooLargeError`."""
    if response.headers.get("Content-Encoding", "identity") == "identity":
        return joined(response.iter_content(piece), largest)
    return joined(response.iter_content(min(piece, _PACKED)), largest, response.raw.tell)


def tls_context(credentials: Credentials) -> ssl.SSLContext:
    """A context that trusts only `credentials.ca` (else the usual authorities) and has the client's certificate.

    Raises `CredentialsError` with the name of the unusable part.
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
            raise CredentialsError(f"certificate and key are not a pair in PEM form ({error.reason})") from None
    return context


def _present(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load `certificate`. OpenSSL needs a file for it, which is removed immediately."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:  # no other user may read it
        both.write(f"{certificate}\n{key}\n")
        both.flush()
        context.load_cert_chain(both.name, password="")  # else OpenSSL would ask for a password at the terminal


def _pem(text: str, what: str) -> str:
    """`text` itself if it is PEM text, else the content of the file that it names."""
    if _PEM in text or not text:
        return text
    try:
        return Path(text).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not PEM"
        raise CredentialsError(f"{what} file {text} can't be read: {why}") from None


def proxy_of(url: str) -> str:
    """The proxy for `url` from the environment, by the rules of `requests`; empty for none."""
    found = select_proxy(url, get_environ_proxies(url))
    return str(prepend_scheme_if_needed(found, "http")) if found else ""  # type: ignore[no-untyped-call]


def no_url(error: ValueError) -> str:
    """The message for an invalid URL."""
    return f"can't be asked: {error}; {CORRECT_URL}"


def cause_of(
    error: requests.RequestException, timeout: float, credentials: Credentials, field: str = "the source's timeout"
) -> str:
    """The cause of a failed request and its fix; `requests` wraps the cause in several other errors.

    field: the setting of `timeout` (s). The order of the checks matters: urllib3 treats every failed connection as a
    time-out.
    """
    causes = list(_causes(error))
    if problem := _address_problem(causes):
        return problem
    scheme = "" if error.request is None else str(error.request.url).partition(":")[0]
    advice = tls_advice(" ".join(map(str, causes)), _fields(credentials), scheme)
    if (distrust := next((c for c in causes if isinstance(c, ssl.SSLCertVerificationError)), None)) is not None:
        return f"has a certificate that can't be trusted ({distrust.verify_message}); {advice}"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return f"refused the connection; start the server, or {CORRECT_URL}"
    if any(isinstance(cause, (requests.Timeout, urllib3.exceptions.TimeoutError)) for cause in causes):
        return f"did not answer within {timeout:g} s; raise {field}, or look at the server's load"
    if isinstance(error, ValueError):  # errors of `requests` for an invalid URL
        return credentials.hide(no_url(error))
    why = credentials.hide(str(causes[-1]))[:LONG]
    return f"can't be read: {why}; {advice}" if advice else f"can't be read: {why}"


def _address_problem(causes: Sequence[BaseException]) -> str:
    """What is wrong with the host, or with the proxy of the environment; empty if nothing.

    The proxy's URL is not shown: it may hold a password.
    """
    texts = " ".join(map(str, causes))
    if "SOCKS" in texts:
        problem = "the environment names a SOCKS proxy, and only HTTP proxies are supported"
    elif "Proxy URL" in texts or any(isinstance(cause, requests.exceptions.InvalidProxyURL) for cause in causes):
        problem = "the environment's proxy is not a URL like http://HOST:PORT"
    elif any(isinstance(cause, requests.exceptions.ProxyError) for cause in causes):
        problem = "the environment's proxy does not answer"
    elif any(isinstance(cause, urllib3.exceptions.NameResolutionError) for cause in causes):
        return f"has a host name that can't be resolved; {CORRECT_URL}"
    else:
        return ""
    return f"can't be asked: {problem}; correct HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, or add the host to NO_PROXY"


def _fields(credentials: Credentials) -> TlsFields:
    """Where TLS is set up for a source."""
    return TlsFields(
        ca="the source's ca" if credentials.ca else "",
        give_ca="correct the source's ca",
        certificate="the source's certificate" if credentials.certificate else "",
        give_certificate="name one in the source's certificate and key",
        url="the source's url",
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error` and its causes, outermost first."""
    seen: list[BaseException] = [error]
    for cause in seen:
        yield cause
        inner = (cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args)
        seen += [other for other in inner if isinstance(other, BaseException) and other not in seen]
