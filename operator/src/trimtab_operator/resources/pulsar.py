"""`PulsarSpec`: the Pulsar cluster whose bundles a policy balances, who asks it, and how hard it may be asked."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from trimtab_operator.resources.common import Duration, Resource, cel
from trimtab_operator.resources.prometheus import SecretKey, Tls, Url

_ONE_WAY = "token and oauth2 exclude each other: leave one out"


class OwnBalancing(StrEnum):
    """What becomes of Pulsar's own shedding and automatic split."""

    VERIFY = "Verify"
    SWITCH_OFF = "SwitchOff"


class OAuth2(Resource):
    """Client credentials, for which the issuer gives tokens that are used until shortly before they end."""

    issuer_url: Url
    """The issuer, as it calls itself: its token endpoint is found at `/.well-known/openid-configuration`."""
    client_id: SecretKey
    """Where the client's name is."""
    client_secret: SecretKey
    """Where its secret is."""
    audience: Annotated[str, Field(max_length=1024)] = ""
    """Whom the token is for, e.g. `urn:sn:pulsar:cluster`; empty: nobody in particular."""
    scope: Annotated[str, Field(max_length=1024)] = ""
    """What is asked for; empty: what the issuer gives."""


class PulsarAuth(Resource):
    """Who asks Pulsar, from Secrets that are released for it by the label `trimtab.dev/credentials: "true"`."""

    model_config = ConfigDict(json_schema_extra=cel(("!has(self.token) || !has(self.oauth2)", _ONE_WAY)))

    token: SecretKey | None = None
    """Where a token is that Pulsar takes as it is (JWT)."""
    oauth2: OAuth2 | None = None
    """Client credentials instead of a token."""
    tls: Tls | None = None
    """An authority of one's own, a client certificate."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.token is not None and self.oauth2 is not None:
            raise ValueError(_ONE_WAY)
        return self

    @property
    def secret(self) -> bool:
        """Whether any of it is in a Secret."""
        return bool(self.token or self.oauth2 or self.tls)


class PulsarSpec(Resource):
    """A Pulsar cluster. All policies of a Kubernetes namespace whose actuator is `Pulsar` name the same one."""

    admin_url: Url
    """Base URL of the admin REST of any broker, or of a Service before all of them, e.g. `http://pulsar-broker:8080`.
    The operator asks Services of the cluster only, unless it was started with `--allow-url`; brokers are asked at the
    addresses under which Pulsar lists them, if those are allowed as well."""
    auth: PulsarAuth | None = None
    """Who asks; nobody in particular if left out."""
    timeout: Duration = "10s"
    """How long one request may take. An unload is answered once the old owner has let go."""
    requests_per_second: Annotated[int, Field(ge=1, le=1000)] = 20
    """At most so many requests a second for looking at the cluster, all brokers together. Moves and splits are not
    counted: their number has limits of its own."""
    max_unloads: Annotated[int, Field(ge=1, le=100)] = 4
    """At most so many bundles are unloaded at the same time."""
    own_balancing: OwnBalancing = OwnBalancing.VERIFY
    """Pulsar's own shedding and automatic split must be off while a policy in mode Auto or Approve moves bundles.
    `Verify`: while they are on, nothing is moved, and the condition `PulsarBalancerDisabled` says where they are on.
    `SwitchOff`: they are switched off by dynamic configuration, and back to what was found when the policy is deleted
    (or by `trimtab restore`)."""
