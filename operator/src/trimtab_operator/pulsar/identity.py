"""Who the operator is to Pulsar, from the Secrets that `spec.pulsar.auth` names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from trimtab_operator.kube.client import Api
from trimtab_operator.observe.load_source import Keyring
from trimtab_operator.pulsar.client.auth import Bearer, Client, ClientCredentials, Identity
from trimtab_operator.resources.pulsar import OAuth2, PulsarAuth, PulsarSpec
from trimtab_operator.resources.urls import AllowedUrls
from trimtab_pipeline.api import NO_CREDENTIALS, Credentials, CredentialsError, SourceMisconfiguredError

WHERE = "spec.pulsar.auth"

Admit = Callable[[str], str]
"""The URL to ask for a URL. Raises `RefusedUrlError`."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What the Secrets hold at one time; equal for as long as they hold the same. Its texts are never shown."""

    credentials: Credentials = NO_CREDENTIALS
    client: Client | None = None

    @property
    def secret(self) -> bool:
        """Whether any of it is from a Secret."""
        return self.client is not None or self.credentials != NO_CREDENTIALS

    def identity(self, admit: Admit, on_refused: Callable[[], None]) -> Identity:
        """Who asks with it. on_refused: called when brokers don't take it. Raises `SourceMisconfiguredError`."""
        try:
            if self.client is not None:
                return ClientCredentials(self.client, self.credentials, admit)
            return Bearer(self.credentials, on_refused)
        except CredentialsError as error:
            raise SourceMisconfiguredError(f"{WHERE}: {error}") from None


def admitting(urls: AllowedUrls, namespace: str, spec: PulsarSpec) -> Admit:
    """What says which URLs may be asked on behalf of a policy in `namespace`: fewer if Secrets are sent there."""
    secret = spec.auth is not None and spec.auth.secret
    return partial(urls.admit, namespace=namespace, secrets=secret)


async def read_proof(api: Api, namespace: str, auth: PulsarAuth | None) -> Proof:
    """What the Secrets hold now. Raises `SourceMisconfiguredError` naming field, Secret and remedy, and `ApiError`."""
    if auth is None:
        return Proof()
    keyring = Keyring(api, namespace, WHERE)
    token, tls = await keyring.text("token", auth.token), await keyring.tls(auth.tls)
    try:
        credentials = Credentials(token, ca=tls["ca"], certificate=tls["certificate"], key=tls["key"])
    except CredentialsError as error:
        raise SourceMisconfiguredError(f"{WHERE}: {error}") from None
    return Proof(credentials, await _client(keyring, auth.oauth2) if auth.oauth2 else None)


async def _client(keyring: Keyring, oauth2: OAuth2) -> Client:
    name = await keyring.text("oauth2.clientId", oauth2.client_id)
    where, secret = oauth2.client_secret, await keyring.text("oauth2.clientSecret", oauth2.client_secret)
    try:
        return Client(oauth2.issuer_url, name, secret, oauth2.audience, oauth2.scope)
    except CredentialsError as error:
        told = f"{WHERE}.oauth2.clientSecret: Secret {where.secret}, key {where.key}"
        raise SourceMisconfiguredError(f"{told}: {error}") from None
