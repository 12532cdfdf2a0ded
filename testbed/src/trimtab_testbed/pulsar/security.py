"""What real brokers ask of clients: nothing, or TLS with a token (JWT, RS256) or a client certificate."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

from trimtab_testbed.servers.certificates import Authority, openssl


class TokenKey:
    """A pair of RSA keys: an issuer makes tokens with the private one, in `folder`; brokers know the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        openssl(folder, "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "tokens.key")

    @property
    def base64(self) -> str:
        """The public one, as brokers are configured with it."""
        return base64.b64encode(
            openssl(self._folder, "pkey", "-in", "tokens.key", "-pubout", "-outform", "DER")
        ).decode()

    def token(self, subject: str, life: float | None = None) -> str:
        """A token for the role `subject`, good for `life` seconds from now (less than 0: over), or without end."""
        end = {} if life is None else {"exp": int(time.time() + life)}
        content = f"{_part({'alg': 'RS256', 'typ': 'JWT'})}.{_part({'sub': subject, **end})}"
        signature = openssl(self._folder, "dgst", "-sha256", "-sign", "tokens.key", given=content.encode())
        return f"{content}.{_text(signature)}"


def _part(values: Mapping[str, object]) -> str:
    return _text(json.dumps(values, separators=(",", ":")).encode())


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


SUPERUSER = "admin"
"""The role that may do everything, where anything is wanted."""


_AUTHENTICATION = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


class OpenSecurity:
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


class TlsSecurity(OpenSecurity):
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
