"""Errors of requests to the Kubernetes API, as types that a caller can tell apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """Base class: a request failed.

    status: HTTP status, 0 without an answer. reason: the API server's reason, such as ``AlreadyExists``.
    retry_after: seconds that the server asked the client to wait, 0 if it did not.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = 0.0


class NotFoundError(ApiError):
    """404: the object does not exist, or its kind does not exist (yet)."""


class ConflictError(ApiError):
    """409: the resourceVersion is out of date, or (`reason` AlreadyExists) the name is taken."""


class GoneError(ApiError):
    """410: the server no longer has the resourceVersion or continue token. List again."""


class RefusedError(ApiError):
    """Another 4xx: the request is invalid or not allowed, and a retry would fail too."""


class ApiUnavailableError(ApiError):
    """No usable answer within the time limit: refused or reset connections, timeouts, 429, 5xx."""


class FencedError(ApiError):
    """A write that was not sent, because this process does not lead (`kube.fence`)."""


class ConnectionSettingsError(ApiError):
    """There is neither a kubeconfig nor a service account, or the one that exists can't be read."""


_BY_STATUS: dict[int, type[ApiError]] = {404: NotFoundError, 409: ConflictError, 410: GoneError}


def error_for(asked: str, status: int, details: Mapping[str, Any]) -> ApiError:
    """The error for an HTTP status of 400 or more. asked: the request. details: the `Status` object of the answer."""
    fallback = ApiUnavailableError if status == 429 or status >= 500 else RefusedError  # noqa: PLR2004
    message = f"{asked}: {status} {details.get('message') or ''}".rstrip()
    return _BY_STATUS.get(status, fallback)(message, status=status, reason=details.get("reason") or "")


def status_object(text: str) -> dict[str, Any]:
    """The `Status` object in the body of an answer; empty if the body is something else."""
    try:
        status = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return status if isinstance(status, dict) else {}
