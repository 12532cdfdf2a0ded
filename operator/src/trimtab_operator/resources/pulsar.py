"""`PulsarSpec`: the Pulsar cluster whose bundles a policy balances, with authentication and request limits."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from trimtab_operator.resources.common import Resource, cel
from trimtab_operator.resources.prometheus import SecretKey, Tls, Url
from trimtab_strategies.params import Duration

_ONE_WAY = "token and oauth2 exclude each other: leave one out"


class OwnBalancing(StrEnum):
    """How Trimtab treats Pulsar's own shedding and automatic split."""

    VERIFY = "Verify"
    SWITCH_OFF = "SwitchOff"


class OAuth2(Resource):
    """OAuth 2 client credentials. The issuer exchanges them for tokens. The operator renews a token before it
    expires."""

    issuer_url: Url
    """URL of the issuer, as in its own discovery document. The token endpoint is read from
    `/.well-known/openid-configuration`."""
    client_id: SecretKey
    """Secret entry with the client id."""
    client_secret: SecretKey
    """Secret entry with the client secret."""
    audience: Annotated[str, Field(max_length=1024)] = ""
    """Audience of the token, such as `urn:sn:pulsar:cluster`. Empty for none."""
    scope: Annotated[str, Field(max_length=1024)] = ""
    """Scope to request. Empty for the issuer's default."""


class PulsarAuth(Resource):
    """Authentication to Pulsar, with credentials from Secrets that have the label `trimtab.dev/credentials: "true"`.
    Certificate authorities may be in a ConfigMap."""

    model_config = ConfigDict(json_schema_extra=cel(("!has(self.token) || !has(self.oauth2)", _ONE_WAY)))

    token: SecretKey | None = None
    """Secret entry with a token (JWT)."""
    oauth2: OAuth2 | None = None
    """OAuth 2 client credentials, instead of a token."""
    tls: Tls | None = None
    """TLS: a private certificate authority, a client certificate."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.token is not None and self.oauth2 is not None:
            raise ValueError(_ONE_WAY)
        return self

    @property
    def secret(self) -> bool:
        """Whether any part is in a Secret."""
        return bool(self.token or self.oauth2 or (self.tls is not None and self.tls.secret))


class PulsarSpec(Resource):
    """A Pulsar cluster. All policies of a Kubernetes namespace must have the same `spec.pulsar`, or all omit it."""

    admin_url: Url
    """Base URL of the admin REST API of any broker, or of a Service for all of them, such as
    `http://pulsar-broker:8080`. The operator connects only to Services of the Kubernetes cluster, unless it runs with
    `--allow-url`. It connects to brokers at the addresses that Pulsar lists, if these are allowed as well."""
    auth: PulsarAuth | None = None
    """Authentication. If absent, requests are anonymous."""
    timeout: Duration = "10s"
    """Time-out of one request. Pulsar answers an unload only after the old owner has released the bundle."""
    requests_per_second: Annotated[int, Field(ge=1, le=1000)] = 20
    """Maximum number of read requests per second, over all brokers. Requests of moves and splits do not count, because
    these have their own limits."""
    max_unloads: Annotated[int, Field(ge=1, le=100)] = 4
    """Maximum number of bundles that are unloaded at the same time."""
    own_balancing: OwnBalancing = OwnBalancing.VERIFY
    """Pulsar's own shedding and automatic split must be off while a policy in mode Auto or Approve moves bundles.
    `Verify`: while they are on, plans are only shown, except for drains, and the condition `PulsarBalancerDisabled`
    names the brokers. `SwitchOff`: the operator switches them off by dynamic configuration. It restores the former
    values when the policy is deleted or its mode is DryRun. `trimtab restore` does that, too."""
