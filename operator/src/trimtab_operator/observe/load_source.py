"""Credentials that a policy names, from Secrets of its own namespace that were released for that.

Whoever may write a policy could otherwise have any Secret of the namespace sent to a server of their own; hence the
label, which takes the right to write the Secret. Credentials are values, never logged, and not kept on any disk; a
Secret that names a file means nothing, as that file would be the operator's own.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from trimtab_operator.cluster.api import SECRETS, Api, NotFoundError, RefusedError
from trimtab_operator.resources.common import GROUP
from trimtab_operator.resources.prometheus import Auth, Header, SecretKey, Tls
from trimtab_pipeline.source import Credentials, CredentialsError, SourceMisconfiguredError

RELEASED = f"{GROUP}/credentials"
"""Label that releases a Secret, when it is ``true``."""
_WHERE = "spec.source.prometheus.auth"
_PEM = "-----BEGIN "


class Keyring:
    """Reads the Secrets that one policy names, each once. where: the field that names them, for what is said."""

    def __init__(self, api: Api, namespace: str, where: str = _WHERE) -> None:
        self._api, self._namespace, self._where = api, namespace, where
        self._found: dict[str, Mapping[str, str]] = {}

    async def credentials(self, auth: Auth) -> Credentials:
        """What `auth` asks for. Raises `SourceMisconfiguredError` naming field, Secret and remedy, and `ApiError`."""
        basic = auth.basic
        parts = {
            "bearer_token": await self.text("bearerToken", auth.bearer_token),
            "username": await self.text("basic.username", basic.username if basic else None),
            "password": await self.text("basic.password", basic.password if basic else None),
            **await self.tls(auth.tls),
        }
        headers = [(header.name, await self._header(k, header)) for k, header in enumerate(auth.headers)]
        try:
            return Credentials(**parts, headers=tuple(headers))
        except CredentialsError as error:
            raise SourceMisconfiguredError(f"{_WHERE}: {error}") from None

    async def tls(self, tls: Tls | None) -> dict[str, str]:
        """What `tls` asks for, by the words of `Credentials`. Raises `SourceMisconfiguredError`, `ApiError`."""
        return {
            "ca": await self._pem("tls.ca", tls.ca if tls else None),
            "certificate": await self._pem("tls.certificate", tls.certificate if tls else None),
            "key": await self._pem("tls.key", tls.key if tls else None),
        }

    async def _header(self, number: int, header: Header) -> str:
        return header.value if header.value is not None else await self.text(f"headers[{number}]", header.secret)

    async def _pem(self, field: str, where: SecretKey | None) -> str:
        """The same for TLS: what is no PEM text would be taken for the name of a file, and none is theirs."""
        text = await self.text(field, where)
        if where is not None and _PEM not in text:
            told = f"{self._where}.{field}: Secret {where.secret}, key {where.key}"
            raise SourceMisconfiguredError(f"{told}: its value is no PEM text (there is no {_PEM})")
        return text

    async def text(self, field: str, where: SecretKey | None) -> str:
        """The entry at `where`, without the line break at its end that editors leave; empty for nowhere.

        field: below the one that names the Secrets. Raises `SourceMisconfiguredError`, `ApiError`.
        """
        if where is None:
            return ""
        secret = f"{self._where}.{field}: Secret {where.secret}"
        entries = await self._entries(where.secret, secret)
        if where.key not in entries:
            there = f"there are {', '.join(sorted(entries))}" if entries else "it is empty"
            raise SourceMisconfiguredError(f"{secret} has no key {where.key}; {there}")
        try:
            text = base64.b64decode(entries[where.key], validate=True).decode().strip()
        except (binascii.Error, UnicodeDecodeError):
            raise SourceMisconfiguredError(f"{secret}, key {where.key}: its value is no text") from None
        if not text:
            raise SourceMisconfiguredError(f"{secret}, key {where.key}: its value is empty")
        return text

    async def _entries(self, name: str, told: str) -> Mapping[str, str]:
        if name in self._found:
            return self._found[name]
        try:
            secret = await self._api.get(SECRETS, self._namespace, name)
        except NotFoundError:
            raise SourceMisconfiguredError(f"{told} does not exist in namespace {self._namespace}; create it") from None
        except RefusedError as error:
            raise SourceMisconfiguredError(f"{told} can't be read: {error}") from error
        if (secret["metadata"].get("labels") or {}).get(RELEASED) != "true":
            raise SourceMisconfiguredError(
                f"{told} is not released for this: label it {RELEASED}=true if the server may have it"
            )
        self._found[name] = secret.get("data") or {}
        return self._found[name]
