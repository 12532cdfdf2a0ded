"""Tokens (JWT, HS256) that a broker with a secret key takes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets


class TokenKey:
    """A key of one's own: brokers know it, and whoever shows a token made by it is who the token says."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    @property
    def base64(self) -> str:
        """As brokers are configured with it."""
        return base64.b64encode(self._key).decode()

    def token(self, subject: str) -> str:
        """A token without end for the role `subject`."""
        content = f"{_part({'alg': 'HS256', 'typ': 'JWT'})}.{_part({'sub': subject})}"
        return f"{content}.{_text(hmac.digest(self._key, content.encode(), hashlib.sha256))}"


def _part(values: dict[str, str]) -> str:
    return _text(json.dumps(values, separators=(",", ":")).encode())


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
