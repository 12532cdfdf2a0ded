"""Finds the API server and our credentials, and sends requests with them. Wraps `kubernetes.aio`.

`kubeconfig` and `exec_plugin` decide which credentials count. That package then sets up TLS, proxies and the tokens of
OpenID Connect. Its generated models are not used, because they would take more time and memory than the rest of a
`Store`.
"""

from __future__ import annotations

import asyncio
import math
import os
import platform
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.helpers import get_env_proxy_for_url
from kubernetes.aio import client, config
from yarl import URL

from trimtab_operator import __version__
from trimtab_operator.kube.errors import ConnectionSettingsError
from trimtab_operator.kube.exec_plugin import ExecPlugin, Issued
from trimtab_operator.kube.fence import Fence
from trimtab_operator.kube.kubeconfig import Entry, Impersonation, Kubeconfig, acting_as_of, proxy_of, server_of
from trimtab_pipeline.credentials import lapse_of
from trimtab_pipeline.tls_faults import TlsFields, tls_advice

USER_AGENT = f"trimtab/{__version__} (python/{platform.python_version()})"
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_POD = "the pod's service account"

_TOKEN_LASTS = 60.0
"""Seconds after which the token file is read again, as tokens rotate."""


class Connection:
    """An open connection to one API server. `open` creates it."""

    def __init__(self, configuration: Any, access: _Access) -> None:
        self._configuration = configuration
        self._access = access
        self._answered = False
        self._client = client.ApiClient(configuration)
        self._client.user_agent = USER_AGENT

    @classmethod
    async def open(
        cls,
        kubeconfig: str | None,
        context: str | None,
        fence: Fence | None = None,
        acting_as: Impersonation | None = None,
    ) -> Connection:
        """Connect as the service account of the pod that this process runs in, or else with a kubeconfig.

        A kubeconfig or a context that is given takes precedence. fence: each write must pass it. acting_as: the
        identity to use instead of our own; None: the one in the kubeconfig, if any. Raises `ConnectionSettingsError` if
        the process runs in no pod and there is no kubeconfig, or if the service account or kubeconfig can't be used.
        """
        configuration = client.Configuration()
        configuration.connection_pool_maxsize = 0  # no limit: each watch keeps a connection, and moves must not wait
        session: dict[str, Any] = {"request_class": fence.requests()} if fence is not None else {}
        access = _Access(kubeconfig, context)
        acting_as = acting_as or acting_as_of(access.entries()[1])
        if acting_as is not None:
            session["headers"] = acting_as.headers  # on the session, as headers of a request can't repeat a name
        configuration.client_session_kwargs = session
        await access.load(configuration)
        _check_proxy(str(configuration.host), configuration.proxy)
        with _usable(access.path):  # this reads the certificates
            return cls(configuration, access)

    @property
    def host(self) -> str:
        """Base URL of the API server."""
        return str(self._configuration.host)

    @property
    def impersonation(self) -> Sequence[tuple[str, str]]:
        """Headers that each request has, so that it acts as another user. Empty if it does not."""
        return tuple(self._configuration.client_session_kwargs.get("headers", ()))

    def explained(self, error: BaseException) -> str:
        """Why a request got no answer, and the fix if TLS is the cause."""
        told, user = str(error) or type(error).__name__, f"the user in {self._access.path}"
        authorities, certificate = (
            f"the certificate-authority in {self._access.path}",
            f"the client-certificate of {user}",
        )
        settings = self._configuration
        fields = TlsFields(
            ca=authorities if settings.ssl_ca_cert else "",
            give_ca=f"set {authorities}",
            certificate=certificate if settings.cert_file else "",
            give_certificate=f"set client-certificate and client-key of {user}",
            url=f"the server in {self._access.path}",
        )
        scheme = "" if self._answered else self.host.partition(":")[0]
        return "; ".join(filter(None, (told, tls_advice(told, fields, scheme))))

    def lapse(self) -> str:
        """Why our token is not valid now, by its own account; empty if it does not say so."""
        return lapse_of(self._configuration.api_key.get("BearerToken", ""), time.time())

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def renew(self, since: float = math.inf) -> None:
        """Read the credentials again. Call it when a token of a kubeconfig or an exec plugin has expired.

        since: a monotonic time; nothing is done if they were read later. Raises `ConnectionSettingsError`.
        """
        async with self._access.lock:
            if self._access.read_at >= since:
                return
            await self._access.load(self._configuration)
            if (certificate := self._configuration.cert_file) is not None:
                with _usable(self._access.path):
                    self._client.rest_client.ssl_context.load_cert_chain(certificate, self._configuration.key_file)

    async def credentials(self) -> dict[str, Any]:
        """Read server, TLS files and token again, and return them under the field names of `kopf.ConnectionInfo`."""
        await self.renew()
        settings, headers = self._configuration, dict[str, str]()
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], "/", "GET", None)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return {
            "server": self.host,
            "ca_path": settings.ssl_ca_cert,
            "insecure": not settings.verify_ssl,
            "scheme": scheme.capitalize() or None,
            "token": token or None,
            "certificate_path": settings.cert_file,
            "private_key_path": settings.key_file,
            "proxy_url": settings.proxy,
        }

    async def send(
        self, method: str, path: str, *, body: Any = None, content_type: str = "application/json", within: Any
    ) -> aiohttp.ClientResponse:
        """Send one request; the caller reads and releases the response. `within`: an `aiohttp.ClientTimeout`."""
        headers = {
            "Accept": "application/json",
            # otherwise the server compresses every page of a list, which costs CPU on both sides
            "Accept-Encoding": "identity",
            "Content-Type": content_type,
            "User-Agent": USER_AGENT,
        }
        if time.time() > self._access.expires:
            with suppress(ConnectionSettingsError):  # then the server refuses the old ones, and the caller renews them
                await self.renew(time.monotonic())
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
            method, self.host + path, headers=headers, body=body, _request_timeout=within
        )
        response = answer.response
        assert isinstance(response, aiohttp.ClientResponse)
        self._answered = True
        return response


def _check_proxy(host: str, own: str | None) -> None:
    """Raise `ConnectionSettingsError` for a proxy of the environment that is not HTTP. own: that of the kubeconfig."""
    try:
        proxy = None if own else get_env_proxy_for_url(URL(host))[0]
    except LookupError:
        return
    if proxy is not None and proxy.scheme not in {"http", "https"}:
        shown = proxy.origin() if proxy.host else proxy.scheme
        problem = "must be http or https: correct it, or set NO_PROXY"
        raise ConnectionSettingsError(f"proxy {shown} of the environment {problem}; it was found for {host}")


class _Access:
    """Where credentials come from, pinned to one context. expires: epoch seconds at which they must be read again."""

    def __init__(self, kubeconfig: str | None, context: str | None) -> None:
        self.lock = asyncio.Lock()
        self.expires, self.read_at = math.inf, -math.inf
        self.path, self._context = _POD, context
        if not _as_the_pod(kubeconfig, context):
            files = Kubeconfig.found(kubeconfig)
            files.context(context)
            self.path, self._context = files.path, context or files.current

    def entries(self) -> tuple[Entry, Entry]:
        """The cluster and the user, as the files say now. Raises `ConnectionSettingsError`."""
        if self.path == _POD:
            return _of_the_pod()
        files = Kubeconfig(self.path)
        return files.chosen(files.context(self._context))

    async def load(self, configuration: Any) -> None:
        """Set the server and the credentials. Raises `ConnectionSettingsError`."""
        cluster, user = self.entries()
        server = server_of(cluster)
        issued = await _credentials(cluster, user, server)
        parts = {"cluster": {"server": server, **_checked_tls(cluster)}, "user": dict(issued.user)}
        whole = {f"{kind}s": [{"name": "own", kind: part}] for kind, part in parts.items()}
        whole["contexts"] = [{"name": "own", "context": {"cluster": "own", "user": "own"}}]
        with _usable(self.path):
            await config.load_kube_config_from_dict(whole, "own", configuration)  # type: ignore[no-untyped-call]
        configuration.refresh_api_key_hook = _token_file(user) if user.text("tokenFile") else None
        self.read_at = time.monotonic()
        # a plugin that issues expired credentials is not asked before each request: the server's answer decides
        self.expires = issued.expires if issued.expires > time.time() else math.inf


async def _credentials(cluster: Entry, user: Entry, server: str) -> Issued:
    """The credentials that count, as fields of a kubeconfig's user."""
    plugin = ExecPlugin.of(user)
    token, certificate = user.token(), _client_certificate(user)
    basic = {name: user.text(name) for name in ("username", "password")} if user.text("username") else {}
    provider = user.values.get("auth-provider")
    if token and basic:
        raise user.wrong("it has a token and a username: remove one")
    if plugin and provider:
        raise user.wrong("it has exec and auth-provider: remove one")
    given = {**({"token": token} if token else basic), **certificate}
    if given:
        return Issued(given, math.inf)
    if plugin:
        return await plugin.run(cluster, server)
    if provider:
        return Issued({"auth-provider": _of_open_id(user, provider)}, math.inf)
    if server.startswith("https:"):
        raise user.wrong("it has no credentials: set a token, a client certificate or exec")
    return Issued({}, math.inf)


def _client_certificate(user: Entry) -> dict[str, str]:
    """The fields of a client certificate and its key; none without a certificate."""
    if not user.pem("client-certificate"):
        return {}
    if not user.pem("client-key"):
        raise user.wrong("it has a client-certificate without a key: set client-key or client-key-data")
    return _files_of(user, "client-certificate") | _files_of(user, "client-key")


def _checked_tls(cluster: Entry) -> dict[str, Any]:
    """The fields of a cluster for TLS and the proxy."""
    insecure = cluster.flag("insecure-skip-tls-verify")
    if cluster.pem("certificate-authority") and insecure:
        raise cluster.wrong("it has a certificate-authority and insecure-skip-tls-verify: remove one")
    told = {"tls-server-name": cluster.text("tls-server-name"), "proxy-url": proxy_of(cluster)}
    fields = {name: text for name, text in told.items() if text} | _files_of(cluster, "certificate-authority")
    return {**fields, "insecure-skip-tls-verify": insecure}


def _files_of(entry: Entry, name: str) -> dict[str, str]:
    """A certificate or key as a kubeconfig has it, with an absolute path."""
    if path := entry.text(name):
        return {name: entry.within(path)}
    return {f"{name}-data": text} if (text := entry.text(f"{name}-data")) else {}


def _of_open_id(user: Entry, provider: Any) -> Any:
    """The provider of tokens, of which only OpenID Connect is left, also in kubectl."""
    name = provider.get("name") if isinstance(provider, dict) else None
    if name != "oidc":
        raise user.wrong(f"auth-provider {name!r} is not supported, as in kubectl: use an exec plugin or oidc")
    return provider


def _token_file(user: Entry) -> Any:
    """A hook that reads the token of a file again once it is old. A file that can't be read leaves the last token."""
    read_at = time.monotonic()

    def refresh(configuration: Any) -> None:
        nonlocal read_at
        if time.monotonic() - read_at > _TOKEN_LASTS:
            with suppress(ConnectionSettingsError):
                configuration.api_key["BearerToken"] = f"Bearer {user.token()}"
                read_at = time.monotonic()

    return refresh


def _of_the_pod() -> tuple[Entry, Entry]:
    """The cluster and the user of the pod that we run in."""
    host, port = (os.environ.get(name, "") for name in (_IN_CLUSTER, "KUBERNETES_SERVICE_PORT"))
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    fields = {"server": server, "certificate-authority": str(_ACCOUNT / "ca.crt")}
    return Entry("server", _POD, fields), Entry("user", _POD, {"tokenFile": str(_ACCOUNT / "token")})


def _as_the_pod(kubeconfig: str | None, context: str | None) -> bool:
    """Whether to connect as the pod that we run in: not if a kubeconfig or a context is given, as in kubectl."""
    named = kubeconfig is not None or context is not None or bool(os.environ.get("KUBECONFIG"))
    return bool(os.environ.get(_IN_CLUSTER)) and not named


def default_namespace(kubeconfig: str | None, context: str | None) -> str:
    """The default namespace, as in kubectl: the pod's, or the context's, or else ``default``.

    Raises `ConnectionSettingsError` for a kubeconfig or a context that does not exist.
    """
    if _as_the_pod(kubeconfig, context):
        own = _ACCOUNT / "namespace"
        return own.read_text(encoding="utf-8").strip() if own.is_file() else "default"
    return Kubeconfig.found(kubeconfig).context(context).text("namespace") or "default"


@contextmanager
def _usable(path: str) -> Iterator[None]:
    """Raise `ConnectionSettingsError` if the block can't use the settings of `path`, or of the pod."""
    try:
        yield
    except (config.ConfigException, OSError, aiohttp.ClientError, KeyError, TypeError, ValueError) as error:
        broken = "a certificate or key can't be read: " if isinstance(error, ssl.SSLError) else ""
        raise ConnectionSettingsError(
            f"{path} can't be used to reach a Kubernetes API server: {broken}{error}"
        ) from error
