"""Tokens (JWT, RS256) that a broker takes which knows the public half of a pair of keys."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path

from trimtab_testbed.certificates import openssl


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
