"""The operator's credentials for Pulsar, from the Secrets that `spec.pulsar.auth` names."""

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
"""Checks a URL and returns it in the form to use. Raises `RefusedUrlError` if it is not allowed."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The contents of the Secrets at one time, comparable with ``==``. Never log them."""

    credentials: Credentials = NO_CREDENTIALS
    client: Client | None = None

    def identity(self, admit: Admit, on_refused: Callable[[], None]) -> Identity:
        """Make the identity. on_refused: called when brokers refuse it. Raises `SourceMisconfiguredError`."""
        try:
            if self.client is not None:
                return ClientCredentials(self.client, self.credentials, admit)
            return Bearer(self.credentials, on_refused)
        except CredentialsError as error:
            raise SourceMisconfiguredError(f"{WHERE}: {error}") from None


def admitting(urls: AllowedUrls, namespace: str, spec: PulsarSpec) -> Admit:
    """The check for the URLs of a policy in `namespace`. If contents of Secrets are sent to them, it allows fewer."""
    secret = spec.auth is not None and spec.auth.secret
    return partial(urls.admit, namespace=namespace, secrets=secret)


async def read_proof(api: Api, namespace: str, auth: PulsarAuth | None) -> Proof:
    """Read the Secrets. Raises `SourceMisconfiguredError` (with field, Secret and remedy) and `ApiError`."""
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
    where, secret = oauth2.client_secret.secret_key_ref, await keyring.text("oauth2.clientSecret", oauth2.client_secret)
    try:
        return Client(oauth2.issuer_url, name, secret, oauth2.audience, oauth2.scope)
    except CredentialsError as error:
        where_secret = f"{WHERE}.oauth2.clientSecret: Secret {where.name}, key {where.key}"
        raise SourceMisconfiguredError(f"{where_secret}: {error}") from None
