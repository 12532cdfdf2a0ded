"""Keeps the load source of one policy open, with the credentials that its Secrets hold at the moment."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

from trimtab_operator.control.context import Context
from trimtab_operator.control.credentials import Keyring
from trimtab_operator.control.settings import Settings
from trimtab_operator.resources.prometheus import Auth
from trimtab_operator.resources.urls import RefusedUrlError
from trimtab_pipeline.source import (
    NO_CREDENTIALS,
    Credentials,
    LoadSource,
    Observation,
    PrometheusSettings,
    SourceMisconfiguredError,
    StatisticsSettings,
    Topology,
)


class RefusingSource:
    """Stands for a source that can't be opened: every look fails with the reason."""

    def __init__(self, error: SourceMisconfiguredError) -> None:
        self._error = error

    def observe(self, _topology: Topology, _at: float) -> Future[Observation]:
        """Failed at once."""
        outcome: Future[Observation] = Future()
        outcome.set_exception(self._error)
        return outcome

    def observe_brokers(self, topology: Topology, at: float) -> Future[Observation]:
        """Failed at once."""
        return self.observe(topology, at)

    def close(self) -> None:
        """There is nothing open."""


class Sourcing:
    """The source of the policy `name`; opened anew when its settings or its credentials change."""

    def __init__(self, context: Context, name: str) -> None:
        self._context, self._name = context, name
        self._source: LoadSource | None = None
        self._of: PrometheusSettings | None = None
        self._known: tuple[Auth, Credentials] | None = None

    async def source(self, settings: Settings, *, afresh: bool = True) -> LoadSource:
        """What to look by; one that refuses when its URL is not allowed, or its credentials can't be had.

        afresh: read the Secrets again even if they have been read. Raises `ApiError`.
        """
        try:
            url = self._admitted(settings)
            credentials = await self._credentials(settings.auth, afresh=afresh)
        except SourceMisconfiguredError as error:
            self._forget()
            return RefusingSource(error)
        wanted = replace(settings.prometheus, url=url, credentials=credentials, statistics=self._statistics(settings))
        if self._source is None or self._of != wanted:
            self.close()
            self._source = self._context.sources.open(f"{self._context.namespace}/{self._name}", wanted)
            self._of = wanted
        return self._source

    def close(self) -> None:
        """Close what is open. Idempotent."""
        if self._source is not None:
            self._source.close()
        self._source = None

    def _forget(self) -> None:
        """Let go of credentials that may not be used any more, and of what was opened with them."""
        self.close()
        self._of = self._known = None

    def _admitted(self, settings: Settings) -> str:
        """The URL to ask, before any Secret is read. Raises `SourceMisconfiguredError`."""
        context, secrets = self._context, settings.auth is not None and settings.auth.secret
        try:
            return context.urls.admit(settings.prometheus.url, context.namespace, secrets=secrets)
        except RefusedUrlError as error:
            raise SourceMisconfiguredError(f"spec.source.prometheus.url: {error}") from None

    def _statistics(self, settings: Settings) -> StatisticsSettings:
        """How brokers are asked, where they are: by whom the linked client is."""
        if not settings.asks_brokers:
            return settings.prometheus.statistics
        return replace(settings.prometheus.statistics, credentials=self._context.link.credentials)

    async def _credentials(self, auth: Auth | None, *, afresh: bool) -> Credentials:
        if auth is None:
            return NO_CREDENTIALS
        if afresh or self._known is None or self._known[0] != auth:
            keyring = Keyring(self._context.api, self._context.namespace)
            self._known = auth, await keyring.credentials(auth)
        return self._known[1]
