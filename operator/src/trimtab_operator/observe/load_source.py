"""The load source of one policy, opened with the credentials that its Secrets contain now.

A policy may name only Secrets of its own namespace that carry the label ``trimtab.dev/credentials``. Otherwise the
right to write a policy would be enough to send any Secret to a server. Credentials are never logged and never written
to disk. An entry of a Secret can't be the name of a file, because the name would refer to the operator's container.
Only certificate authorities may be in a ConfigMap. They are not sent to a server, so the ConfigMap needs no label.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from trimtab_operator.kube.client import CONFIG_MAPS, SECRETS, Api, NotFoundError, RefusedError
from trimtab_operator.kube.wire import ResourceRef
from trimtab_operator.resources.common import GROUP
from trimtab_operator.resources.prometheus import (
    Auth,
    ConfigMapKeyRef,
    Header,
    SecretKey,
    SecretKeyRef,
    Tls,
    TrustedAuthorities,
)
from trimtab_operator.resources.urls import RefusedUrlError
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings
from trimtab_pipeline.api import (
    NO_CREDENTIALS,
    Credentials,
    CredentialsError,
    LoadSource,
    Observation,
    PrometheusSettings,
    SourceMisconfiguredError,
    StatisticsSettings,
    Topology,
)

RELEASED = f"{GROUP}/credentials"
"""Label of a Secret that policies may use. Its value is ``true``."""

_WHERE = "spec.source.prometheus.auth"

_PEM = "-----BEGIN "

_Reference = SecretKeyRef | ConfigMapKeyRef

_KINDS: Mapping[type[_Reference], ResourceRef] = {SecretKeyRef: SECRETS, ConfigMapKeyRef: CONFIG_MAPS}


class Keyring:
    """Reads the Secrets and ConfigMaps that one policy names, each once.

    where: the field that names them, for error texts.
    """

    def __init__(self, api: Api, namespace: str, where: str = _WHERE) -> None:
        self._api, self._namespace, self._where = api, namespace, where
        self._found: dict[tuple[str, str], Mapping[str, str]] = {}

    async def credentials(self, auth: Auth) -> Credentials:
        """The credentials of `auth`. Raises `ApiError`, or `SourceMisconfiguredError` with field, Secret and remedy."""
        basic = auth.basic
        parts: dict[str, Any] = {
            "bearer_token": await self.text("bearerToken", auth.bearer_token),
            "username": await self.text("basic.username", basic.username if basic else None),
            "password": await self.text("basic.password", basic.password if basic else None),
            **await self.tls(auth.tls),
        }
        headers = [(header.name, await self._header(k, header)) for k, header in enumerate(auth.headers)]
        try:
            return Credentials(**parts, headers=tuple(headers))
        except CredentialsError as error:
            raise SourceMisconfiguredError(f"{self._where}: {error}") from None

    async def tls(self, tls: Tls | None) -> dict[str, str]:
        """The entries of `tls`, by the field names of `Credentials`. Raises `SourceMisconfiguredError`, `ApiError`."""
        return {
            "ca": await self._pem("tls.ca", _reference(tls.ca if tls else None)),
            "certificate": await self._pem("tls.certificate", _reference(tls.certificate if tls else None)),
            "key": await self._pem("tls.key", _reference(tls.key if tls else None)),
        }

    async def _header(self, number: int, header: Header) -> str:
        if header.secret_key_ref is None:
            return header.value or ""
        return await self._entry(f"headers[{number}]", header.secret_key_ref)

    async def _pem(self, field: str, where: _Reference | None) -> str:
        """The entry at `where`, which must be PEM text: any other text would be taken for the name of a file."""
        if where is None:
            return ""
        text = await self._entry(field, where)
        if _PEM not in text:
            at = f"{self._where}.{field}: {_kind(where)} {where.name}, key {where.key}"
            raise SourceMisconfiguredError(f"{at}: its value is no PEM text (there is no {_PEM})")
        return text

    async def text(self, field: str, where: SecretKey | None) -> str:
        """The entry at `where`, without the line break that editors leave at its end; empty if `where` is None.

        field: path below the field that names the Secrets. Raises `SourceMisconfiguredError`, `ApiError`.
        """
        return "" if where is None else await self._entry(field, where.secret_key_ref)

    async def _entry(self, field: str, where: _Reference) -> str:
        at = f"{self._where}.{field}: {_kind(where)} {where.name}"
        entries = await self._entries(where, at)
        if where.key not in entries:
            there = f"there are {', '.join(sorted(entries))}" if entries else "it is empty"
            raise SourceMisconfiguredError(f"{at} has no key {where.key}; {there}")
        try:
            text = _decoded(where, entries[where.key]).strip()
        except (binascii.Error, UnicodeDecodeError):
            raise SourceMisconfiguredError(f"{at}, key {where.key}: its value is not text") from None
        if not text:
            raise SourceMisconfiguredError(f"{at}, key {where.key}: its value is empty")
        return text

    async def _entries(self, where: _Reference, at: str) -> Mapping[str, str]:
        found = _kind(where), where.name
        if found in self._found:
            return self._found[found]
        try:
            object_ = await self._api.get(_KINDS[type(where)], self._namespace, where.name)
        except NotFoundError:
            raise SourceMisconfiguredError(f"{at} does not exist in namespace {self._namespace}; create it") from None
        except RefusedError as error:
            raise SourceMisconfiguredError(f"{at} can't be read: {error}") from error
        if isinstance(where, SecretKeyRef) and (object_["metadata"].get("labels") or {}).get(RELEASED) != "true":
            raise SourceMisconfiguredError(
                f"{at} is not released for this: label it {RELEASED}=true if the server may have it"
            )
        self._found[found] = object_.get("data") or {}
        return self._found[found]


def _reference(where: SecretKey | TrustedAuthorities | None) -> _Reference | None:
    """The Secret or the ConfigMap that `where` names."""
    if isinstance(where, TrustedAuthorities) and where.config_map_key_ref is not None:
        return where.config_map_key_ref
    return None if where is None else where.secret_key_ref


def _kind(where: _Reference) -> str:
    return _KINDS[type(where)].kind


def _decoded(where: _Reference, value: str) -> str:
    """The text of an entry. Entries of Secrets are in base64. Raises `binascii.Error`, `UnicodeDecodeError`."""
    return base64.b64decode(value, validate=True).decode() if isinstance(where, SecretKeyRef) else value


class RefusingSource:
    """Replaces a source that can't be opened: every measurement fails with the reason."""

    def __init__(self, error: SourceMisconfiguredError) -> None:
        self._error = error

    def observe(self, _topology: Topology, _at: float) -> Future[Observation]:
        """Fail immediately."""
        outcome: Future[Observation] = Future()
        outcome.set_exception(self._error)
        return outcome

    observe_brokers = observe


class SourceProvider:
    """The source of the policy `name`, reopened when its settings or its credentials change."""

    def __init__(self, cluster: ClusterState, name: str) -> None:
        self._cluster, self._name = cluster, name
        self._source: LoadSource | None = None
        self._of: PrometheusSettings | None = None
        self._known: tuple[Auth, Credentials] | None = None

    async def source(self, settings: Settings, *, afresh: bool = True) -> LoadSource:
        """The open source, or a `RefusingSource` if its URL is not allowed or its credentials can't be read.

        afresh: read the Secrets again even if they have been read. Raises `ApiError`.
        """
        try:
            url = self._admitted(settings)
            credentials = await self._credentials(settings.auth, afresh=afresh)
        except SourceMisconfiguredError as error:
            self._source = self._of = self._known = None  # credentials that may not be used any more
            return RefusingSource(error)
        wanted = replace(settings.prometheus, url=url, credentials=credentials, statistics=self._statistics(settings))
        if self._source is None or self._of != wanted:
            self._source = self._cluster.sources.open(f"{self._cluster.namespace}/{self._name}", wanted)
            self._of = wanted
        return self._source

    def _admitted(self, settings: Settings) -> str:
        """The URL to query, checked before any Secret is read. Raises `SourceMisconfiguredError`."""
        cluster, secrets = self._cluster, settings.auth is not None and settings.auth.secret
        try:
            return cluster.urls.admit(settings.prometheus.url, cluster.namespace, secrets=secrets)
        except RefusedUrlError as error:
            raise SourceMisconfiguredError(f"spec.source.prometheus.url: {error}") from None

    def _statistics(self, settings: Settings) -> StatisticsSettings:
        """Settings of the brokers' statistics, with the credentials of the connection to Pulsar."""
        if not settings.asks_brokers:
            return settings.prometheus.statistics
        return replace(settings.prometheus.statistics, credentials=self._cluster.link.credentials)

    async def _credentials(self, auth: Auth | None, *, afresh: bool) -> Credentials:
        if auth is None:
            return NO_CREDENTIALS
        if afresh or self._known is None or self._known[0] != auth:
            keyring = Keyring(self._cluster.api, self._cluster.namespace)
            self._known = auth, await keyring.credentials(auth)
        return self._known[1]
