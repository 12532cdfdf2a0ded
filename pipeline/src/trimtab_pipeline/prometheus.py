"""The HTTP layer: `prometheus-api-client` on a session of ours, whose answers are Arrow columns.

What the session adds to the client: parameters travel in the body of the POST (a shard's list of pods is long), a
timeout is always set, retries are few and short, ``warnings`` of partial answers are kept, and every failure is a
`PrometheusError` that names the URL. Bodies are asked for uncompressed: compressing them costs a Prometheus server more
time than a cluster's network needs to carry them.

Thanos and Mimir speak the same API. Thanos reports stores that did not answer as ``warnings``, or fails the query when
``partial_response`` is false; Mimir answers below a prefix (``/prometheus``), which belongs into the URL, and wants a
tenant in the header ``X-Scope-OrgID``. Redirects are not followed: they lead to log-in pages, and credentials must not
go where nobody sent them.
"""

from __future__ import annotations

import json
import ssl
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests
import urllib3
from prometheus_api_client import PrometheusConnect
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3.util.retry import Retry

from trimtab_pipeline.samples import MalformedBodyError, Samples, head, parse_vector
from trimtab_pipeline.source import NO_CREDENTIALS, Credentials, CredentialsError

_OK, _MOVED, _REFUSED = 200, range(300, 400), (401, 403)
_WRONG = (400, 422)  # a query that does not parse, or can't be evaluated
_PEM = "-----BEGIN"
_LONG = 300  # characters of somebody else's text in a message
_CORRECT_URL = "correct the source's url"
_RETRIED = (429, 502, 503, 504)


class PrometheusError(RuntimeError):
    """A query that Prometheus did not answer; the message names the URL and the cause."""


class PrometheusUnreachableError(PrometheusError):
    """No answer: refused, timed out, broken off."""


class PrometheusStatusError(PrometheusError):
    """An answer with an HTTP status other than 200. refused: whether it says that the query itself is wrong."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.refused = status in _WRONG


class PrometheusFormatError(PrometheusError):
    """An answer that can't be read as an instant vector."""


class ArrowResponse(requests.Response):
    """A response whose ``json()`` holds `Samples` where Prometheus' holds a list of series."""

    def json(self, **_: Any) -> dict[str, dict[str, Samples]]:
        """The answer as `prometheus-api-client` unwraps it. Raises `MalformedBodyError`."""
        return {"data": {"result": parse_vector(self.content)}}


class _Signed(AuthBase):
    """Puts the credentials of the moment on each request; also keeps `requests` from looking for a ``.netrc``."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if authorization := self._credentials.authorization():
            request.headers["Authorization"] = authorization
        request.headers.update(self._credentials.headers)
        return request


class _TlsAdapter(HTTPAdapter):
    """Connections by a TLS context of ours: `requests` knows no PEM text, and adds its own authorities to others."""

    def __init__(self, context: ssl.SSLContext, retry: Retry) -> None:
        self._context = context
        super().__init__(max_retries=retry)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs, ssl_context=self._context)

    def build_connection_pool_key_attributes(self, *args: Any, **kwargs: Any) -> Any:
        host, _ = super().build_connection_pool_key_attributes(*args, **kwargs)
        return host, {}

    def cert_verify(self, *_: Any, **__: Any) -> None:
        """Nothing to add: the context knows whom to believe."""


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


class ArrowSession(requests.Session):
    """A session for `PrometheusConnect` that sends forms, signs them, and returns `ArrowResponse`."""

    def __init__(self, credentials: Credentials = NO_CREDENTIALS) -> None:
        super().__init__()
        self._credentials = credentials
        self.clock_ahead: float | None = None
        self.auth = _Signed(credentials)
        self.headers["Accept-Encoding"] = "identity"

    def request(self, method: str | bytes, url: str | bytes, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """As `requests.Session.request`, raising `PrometheusStatusError` unless the status is 200."""
        if method == "POST":
            kwargs["data"] = kwargs.pop("params")
        response = super().request(method, url, allow_redirects=False, **kwargs)
        self.clock_ahead = _ahead(response.headers.get("Date", ""), time.time())
        if response.status_code != _OK:
            told = _told(response, self._credentials) + _advice(response.status_code, self._credentials)
            raise PrometheusStatusError(
                f"{_text(url)} answered {response.status_code}: {told}", status=response.status_code
            )
        response.__class__ = ArrowResponse
        return response


class Prometheus:
    """Instant queries against one server. A context manager; not thread safe.

    url:     base URL, with or without a slash at its end.
    timeout: seconds to connect, and seconds between two pieces of the answer.
    credentials, method, partial_response: as in `PrometheusSettings`.
    """

    def __init__(
        self,
        url: str,
        timeout: float,
        credentials: Credentials = NO_CREDENTIALS,
        *,
        method: str = "POST",
        partial_response: bool | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._credentials = credentials
        self._method = method
        self._dialect = {} if partial_response is None else {"partial_response": str(partial_response).lower()}
        self._session = ArrowSession(credentials)

    @cached_property
    def _client(self) -> PrometheusConnect:
        """The client. Raises `ValueError` for a URL that is none, `CredentialsError`."""
        # A server that is slow is not asked again: that would only make it slower, and the next cycle asks anyway.
        retry = Retry(
            total=2,
            connect=0,
            read=0,
            backoff_factor=0.1,
            status_forcelist=_RETRIED,
            allowed_methods=None,
            raise_on_status=False,
            respect_retry_after_header=False,
        )
        client = PrometheusConnect(
            self.url, retry=retry, session=self._session, timeout=self._timeout, method=self._method
        )
        if self._credentials.custom_tls:
            self._session.mount(self.url, _TlsAdapter(tls_context(self._credentials), retry))
        return client

    @property
    def clock_ahead(self) -> float | None:
        """Seconds that the server's clock was ahead of ours at its last answer, to the second; None if it did not tell.

        It is the clock that the samples of a scrape get their times from.
        """
        return self._session.clock_ahead

    def query(self, promql: str, at: float) -> Samples:
        """The vector `promql` evaluates to at `at` (epoch seconds). Raises `PrometheusError`."""
        params = {"time": f"{at:.3f}", "timeout": f"{self._timeout * 1000:.0f}ms", **self._dialect}
        try:
            samples: Samples = self._client.custom_query(promql, params=params)
        except CredentialsError as error:
            raise PrometheusUnreachableError(f"{self.url} can't be asked: {error}") from error
        except requests.RequestException as error:
            cause = _cause(error, self._timeout, self._credentials)
            raise PrometheusUnreachableError(f"{self.url} {cause}") from error
        except MalformedBodyError as error:
            raise PrometheusFormatError(f"{self.url}: {_hidden(error, self._credentials)}") from None
        except ValueError as error:
            raise PrometheusUnreachableError(f"{self.url} {_no_url(error)}") from error
        return replace(samples, warnings=tuple(map(self._credentials.hide, samples.warnings)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()


def _ahead(date: str, now: float) -> float | None:
    """Seconds that a ``Date`` header, which is cut to the second, is ahead of `now` (epoch s)."""
    try:
        told = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
    return told - now if told > now else min(0.0, told + 1.0 - now)


def _text(url: str | bytes) -> str:
    return url.decode() if isinstance(url, bytes) else url


def _told(response: requests.Response, credentials: Credentials) -> str:
    """What an answer says went wrong: the ``error`` of Prometheus' own ones, where it leads to, else its beginning."""
    if response.status_code in _MOVED:
        return f"it leads to {credentials.hide(response.headers.get('Location', 'nowhere'))[:_LONG]}; {_CORRECT_URL}"
    try:
        return credentials.hide(str(json.loads(response.content)["error"]))[:_LONG]
    except (ValueError, KeyError, TypeError):
        return head(credentials.hide(response.content.decode("utf-8", "replace")).encode(), _LONG)


def _hidden(error: MalformedBodyError, credentials: Credentials) -> MalformedBodyError:
    """The same without what the body repeats of the credentials."""
    body = credentials.hide(error.body.decode("utf-8", "replace")).encode()
    return MalformedBodyError(credentials.hide(error.what)[:_LONG], body)


def _advice(status: int, credentials: Credentials) -> str:
    """What to do about a refusal."""
    if status not in _REFUSED:
        return ""
    return f"; correct the source's credentials (it was asked with {credentials!r})"


def _no_url(error: ValueError) -> str:
    return f"can't be asked: {error}; {_CORRECT_URL}"


def _cause(error: requests.RequestException, timeout: float, credentials: Credentials) -> str:
    """What happened, and what to do about it; `requests` wraps the cause in layers of others.

    In this order: urllib3 counts every connection that could not be made among the time-outs.
    """
    causes = list(_causes(error))
    if any(isinstance(cause, urllib3.exceptions.NameResolutionError) for cause in causes):
        return f"has a host name that can't be resolved; {_CORRECT_URL}"
    if (distrust := next((c for c in causes if isinstance(c, ssl.SSLCertVerificationError)), None)) is not None:
        return f"has a certificate that can't be believed ({distrust.verify_message}); correct the source's ca"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return f"refused the connection; start the server, or {_CORRECT_URL}"
    if any(isinstance(cause, (requests.Timeout, urllib3.exceptions.TimeoutError)) for cause in causes):
        return f"did not answer within {timeout:g} s; raise the source's timeout, or look at the server's load"
    if isinstance(error, ValueError):  # how `requests` tells of a URL that is none
        return credentials.hide(_no_url(error))
    return f"can't be read: {credentials.hide(str(causes[-1]))[:_LONG]}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error`, and what it was made from, outermost first."""
    seen: list[BaseException] = [error]
    for cause in seen:
        yield cause
        inner = (cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args)
        seen += [other for other in inner if isinstance(other, BaseException) and other not in seen]
