"""Who asks Pulsar: what is sent along with each request, and what TLS takes. Nothing here is ever shown."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Protocol

from trimtab_operator.pulsar.tls import tls_context
from trimtab_pipeline.source import NO_CREDENTIALS, Credentials


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
