"""What brokers want of those who ask: nothing, or TLS and a token or certificate."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from trimtab_testbed.certificates import Authority
from trimtab_testbed.pulsar.tokens import TokenKey

SUPERUSER = "admin"
"""The role that may do everything, where anything is wanted."""

_AUTHENTICATION = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


class Open:
    """Everybody is let in, by http."""

    http = "http"
    binary = "pulsar"

    @property
    def context(self) -> ssl.SSLContext | None:
        """What a client's TLS takes; None for the usual, or none."""
        return None

    def token(self, role: str = SUPERUSER) -> str:  # noqa: ARG002  the others' face
        """A token for `role`; empty where none is asked for."""
        return ""

    def settings(self, web_port: int, binary_port: int) -> Mapping[str, object]:
        """Of a broker that has these ports."""
        return {"webServicePort": web_port, "brokerServicePort": binary_port}


class Tls(Open):
    """Nobody is let in without a token or a client's certificate, and by TLS alone. Keys and certificates: in `folder`.

    authority: whose certificates brokers show and believe; a client's common name is its role.
    keys:      tokens are made with the private one.
    """

    http = "https"
    binary = "pulsar+ssl"

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.keys = TokenKey(folder)
        self._shown = self.authority.server("broker")

    @property
    def context(self) -> ssl.SSLContext | None:
        """Believes the authority alone."""
        return ssl.create_default_context(cafile=str(self.authority.certificate))

    def token(self, role: str = SUPERUSER) -> str:
        """A token for `role`, without end."""
        return self.keys.token(role)

    def settings(self, web_port: int, binary_port: int) -> Mapping[str, object]:
        """No port speaks anything but TLS."""
        (certificate, key), authority = self._shown, self.authority.certificate
        return {
            "webServicePort": "",
            "webServicePortTls": web_port,
            "brokerServicePort": "",
            "brokerServicePortTls": binary_port,
            "tlsCertificateFilePath": certificate,
            "tlsKeyFilePath": key,
            "tlsTrustCertsFilePath": authority,
            "brokerClientTlsEnabled": True,
            "brokerClientTrustCertsFilePath": authority,
            **_guarded(self.token(), "Token", "Tls"),
            "tokenPublicKey": f"data:;base64,{self.keys.base64}",
        }


def _guarded(token: str, *providers: str) -> Mapping[str, object]:
    """Who is let in is known by one of `providers`. token: what brokers show one another."""
    return {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "authenticationProviders": ",".join(f"{_AUTHENTICATION}{provider}" for provider in providers),
        "superUserRoles": SUPERUSER,
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token}",
    }
