"""Authentication of real brokers: none, or TLS with a token (JWT, RS256) or a client certificate."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

from trimtab_testbed.servers.certificates import Authority, openssl


class TokenKey:
    """A pair of RSA keys in `folder`. Tokens are signed with the private one; brokers know the public one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        openssl(folder, "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "tokens.key")

    @property
    def base64(self) -> str:
        """The public key, as in the brokers' configuration."""
        return base64.b64encode(
            openssl(self._folder, "pkey", "-in", "tokens.key", "-pubout", "-outform", "DER")
        ).decode()

    def token(self, subject: str, life: float | None = None) -> str:
        """A token for the role `subject`, valid for `life` seconds (negative: already expired), or forever if None."""
        end = {} if life is None else {"exp": int(time.time() + life)}
        content = f"{_part({'alg': 'RS256', 'typ': 'JWT'})}.{_part({'sub': subject, **end})}"
        signature = openssl(self._folder, "dgst", "-sha256", "-sign", "tokens.key", given=content.encode())
        return f"{content}.{_text(signature)}"


def _part(values: Mapping[str, object]) -> str:
    return _text(json.dumps(values, separators=(",", ":")).encode())


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


SUPERUSER = "admin"
"""The role with all rights, if authentication is on."""


_AUTHENTICATION = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


class OpenSecurity:
    """No authentication, over HTTP."""

    http = "http"
    binary = "pulsar"

    @property
    def context(self) -> ssl.SSLContext | None:
        """TLS context for clients; None without TLS."""
        return None

    def token(self, role: str = SUPERUSER) -> str:  # noqa: ARG002  subclasses need it
        """A token for `role`; empty without authentication."""
        return ""

    def settings(self, web_port: int, binary_port: int) -> Mapping[str, object]:
        """Settings of a broker with these ports."""
        return {"webServicePort": web_port, "brokerServicePort": binary_port}


class TlsSecurity(OpenSecurity):
    """TLS only, with a token or a client certificate. Keys and certificates are in `folder`.

    authority: signs the certificates of brokers and clients; a client's common name is its role.
    keys:      sign the tokens.
    """

    http = "https"
    binary = "pulsar+ssl"

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.keys = TokenKey(folder)
        self._shown = self.authority.server("broker")

    @property
    def context(self) -> ssl.SSLContext | None:
        """TLS context for clients, which trusts only the authority."""
        return ssl.create_default_context(cafile=str(self.authority.certificate))

    def token(self, role: str = SUPERUSER) -> str:
        """A token for `role` that does not expire."""
        return self.keys.token(role)

    def settings(self, web_port: int, binary_port: int) -> Mapping[str, object]:
        """Settings without any plain-text port."""
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
    """Settings that turn on authentication by `providers`. token: used by brokers among themselves."""
    return {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "authenticationProviders": ",".join(f"{_AUTHENTICATION}{provider}" for provider in providers),
        "superUserRoles": SUPERUSER,
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token}",
    }
