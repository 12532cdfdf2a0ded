"""Keeps the load source of one policy open, with the credentials that its Secrets hold at the moment."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

from trimtab_operator.cluster.api import Api
from trimtab_operator.control.credentials import Keyring
from trimtab_operator.control.settings import Settings
from trimtab_operator.resources.prometheus import Auth
from trimtab_pipeline.source import (
    NO_CREDENTIALS,
    Credentials,
    LoadSource,
    LoadSources,
    Observation,
    PrometheusSettings,
    SourceMisconfiguredError,
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
    """The source of the policy `name` in `namespace`; opened anew when its settings or its credentials change."""

    def __init__(self, api: Api, sources: LoadSources, namespace: str, name: str) -> None:
        self._api, self._sources, self._namespace, self._name = api, sources, namespace, name
        self._source: LoadSource | None = None
        self._of: PrometheusSettings | None = None
        self._known: tuple[Auth, Credentials] | None = None

    async def source(self, settings: Settings, *, afresh: bool = True) -> LoadSource:
        """What to look by; one that refuses when its credentials can't be had.

        afresh: read the Secrets again even if they have been read. Raises `ApiError`.
        """
        try:
            credentials = await self._credentials(settings.auth, afresh=afresh)
        except SourceMisconfiguredError as error:
            self._known = None
            return RefusingSource(error)
        wanted = replace(settings.prometheus, credentials=credentials)
        if self._source is None or self._of != wanted:
            self.close()
            self._source = self._sources.open(f"{self._namespace}/{self._name}", wanted)
            self._of = wanted
        return self._source

    def close(self) -> None:
        """Close what is open. Idempotent."""
        if self._source is not None:
            self._source.close()
        self._source = None

    async def _credentials(self, auth: Auth | None, *, afresh: bool) -> Credentials:
        if auth is None:
            return NO_CREDENTIALS
        if afresh or self._known is None or self._known[0] != auth:
            self._known = auth, await Keyring(self._api, self._namespace).credentials(auth)
        return self._known[1]
