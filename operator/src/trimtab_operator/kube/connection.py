"""Finds the API server and our credentials, and sends requests with them. Wraps `kubernetes.aio`.

That package handles kubeconfig files, exec plugins, rotating service-account tokens, client certificates and proxies.
Its generated models are not used, because they would take more time and memory than the rest of a `Store`.
"""

from __future__ import annotations

import os
import platform
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from kubernetes.aio import client, config

from trimtab_operator import __version__
from trimtab_operator.kube.errors import ConnectionSettingsError
from trimtab_operator.kube.fence import Fence

USER_AGENT = f"trimtab/{__version__} (python/{platform.python_version()})"
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user and the groups to impersonate. We need the permission to impersonate them."""

    user: str
    groups: tuple[str, ...] = ()

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Headers of each request."""
        return [("Impersonate-User", self.user), *(("Impersonate-Group", group) for group in self.groups)]


class Connection:
    """An open connection to one API server. `open` creates it."""

    def __init__(self, configuration: Any, kubeconfig: str | None, context: str | None) -> None:
        self._configuration = configuration
        self._kubeconfig = kubeconfig
        self._context = context
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
        path = None
        if not _as_the_pod(kubeconfig, context):
            files = _files(named := _kubeconfig_path(kubeconfig))
            path = os.pathsep.join(files) or named  # `kubernetes.aio` can't read empty files
            context = context or _contexts(files)[1] or None  # it would use the last file's
            acting_as = acting_as or _acting_as(files, context)
        if acting_as is not None:
            session["headers"] = acting_as.headers  # on the session, as headers of a request can't repeat a name
        configuration.client_session_kwargs = session
        await _load(configuration, path, context)
        with _usable(path):  # this reads the certificates
            return cls(configuration, path, context)

    @property
    def host(self) -> str:
        """Base URL of the API server."""
        return str(self._configuration.host)

    @property
    def impersonation(self) -> Sequence[tuple[str, str]]:
        """Headers that each request has, so that it acts as another user. Empty if it does not."""
        return tuple(self._configuration.client_session_kwargs.get("headers", ()))

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def renew(self) -> None:
        """Read the credentials again. Call it when a token of a kubeconfig or an exec plugin has expired."""
        await _load(self._configuration, self._kubeconfig, self._context)

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
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
            method, self.host + path, headers=headers, body=body, _request_timeout=within
        )
        response = answer.response
        assert isinstance(response, aiohttp.ClientResponse)
        return response


def _as_the_pod(kubeconfig: str | None, context: str | None) -> bool:
    """Whether to connect as the pod that we run in: not if a kubeconfig or a context is given, as in kubectl."""
    named = kubeconfig is not None or context is not None or bool(os.environ.get("KUBECONFIG"))
    return bool(os.environ.get(_IN_CLUSTER)) and not named


def default_namespace(kubeconfig: str | None, context: str | None) -> str:
    """The default namespace, as in kubectl: the pod's, or the context's, or else ``default``.

    Raises `ConnectionSettingsError` for a kubeconfig or a context that does not exist.
    """
    if _as_the_pod(kubeconfig, context):
        return _OWN_NAMESPACE.read_text(encoding="utf-8").strip() if _OWN_NAMESPACE.is_file() else "default"
    found, current = contexts(kubeconfig)
    name = context or current
    if name not in found:
        problem = f"context {name!r} is not in the kubeconfig" if name else "the kubeconfig has no current context"
        raise ConnectionSettingsError(
            f"{problem}; choose one with --context: {', '.join(found) or '(the kubeconfig has none)'}"
        )
    return found[name] or "default"


def contexts(kubeconfig: str | None) -> tuple[dict[str, str], str]:
    """The namespace of each context (empty if none) by the context's name, and the name of the current context.

    If several files set a value, the value of the first one is used, as in kubectl. Raises `ConnectionSettingsError`.
    """
    return _contexts(_files(_kubeconfig_path(kubeconfig)))


def _contexts(files: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    found, current = dict[str, str](), ""
    for part, text in files.items():
        with _readable(part):
            listed = {
                one["name"]: (one.get("context") or {}).get("namespace", "") for one in text.get("contexts") or ()
            }
            current = current or text.get("current-context") or ""
        found = listed | found
    return found, current


def _acting_as(files: Mapping[str, Any], context: str | None) -> Impersonation | None:
    """The identity that the user of `context` acts as. Raises `ConnectionSettingsError` if we can't do so."""
    user = _named(files, "users", _named(files, "contexts", context).get("user"))
    name, groups = user.get("as"), user.get("as-groups") or ()
    refused = [field for field in ("as-uid", "as-user-extra") if user.get(field)]
    if refused:
        raise ConnectionSettingsError(f"the kubeconfig sets {refused[0]}, which Trimtab does not support; use --as")
    if not isinstance(groups, list | tuple) or not all(isinstance(one, str) for one in (name or "", *groups)):
        raise ConnectionSettingsError("the kubeconfig's as must be a text, and its as-groups a list of texts")
    if groups and not name:
        raise ConnectionSettingsError("the kubeconfig sets as-groups, but not as: name a user, too")
    return Impersonation(name, tuple(groups)) if name else None


def _named(files: Mapping[str, Any], kind: str, name: object) -> Mapping[str, Any]:
    """The first entry with that name, as in kubectl. kind: contexts or users. Raises `ConnectionSettingsError`."""
    for part, text in files.items():
        with _readable(part):
            for one in text.get(kind) or ():
                if one["name"] == name:
                    return dict(one.get(kind.removesuffix("s")) or {})
    return {}


def _files(path: str) -> dict[str, Any]:
    """The content of each file of a path that is not empty. Raises `ConnectionSettingsError`."""
    found = dict[str, Any]()
    for part in filter(os.path.isfile, path.split(os.pathsep)):
        with _readable(part):
            found[part] = yaml.safe_load(Path(part).read_text(encoding="utf-8"))
    return {part: text for part, text in found.items() if text}


_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)
"""Errors for values of a kubeconfig of a wrong type, such as a number as the server."""


@contextmanager
def _readable(part: str) -> Iterator[None]:
    """Raise `ConnectionSettingsError` if the block finds that a kubeconfig is none."""
    try:
        yield
    except (yaml.YAMLError, OSError, *_MALFORMED) as error:
        raise ConnectionSettingsError(f"kubeconfig {part} can't be read: {error}") from error


def _kubeconfig_path(given: str | None) -> str:
    default = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    path = given or default
    if given is not None and not Path(path).is_file():
        raise ConnectionSettingsError(f"kubeconfig {path} does not exist")
    if not any(Path(part).is_file() for part in path.split(os.pathsep)):
        raise ConnectionSettingsError(
            f"no Kubernetes API server found: this is not a pod, and there is no {path}; set KUBECONFIG or --kubeconfig"
        )
    return path


async def _load(configuration: Any, path: str | None, context: str | None) -> None:
    with _usable(path):
        if path is None:
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        else:
            await config.load_kube_config(path, context, configuration)  # type: ignore[no-untyped-call]


@contextmanager
def _usable(path: str | None) -> Iterator[None]:
    """Raise `ConnectionSettingsError` if the block can't use the settings of `path`, or of the pod."""
    try:
        yield
    except (config.ConfigException, yaml.YAMLError, OSError, *_MALFORMED) as error:
        where = path or "the pod's service account"
        broken = "a certificate or key can't be read: " if isinstance(error, ssl.SSLError) else ""
        raise ConnectionSettingsError(
            f"{where} can't be used to reach a Kubernetes API server: {broken}{error}"
        ) from error
