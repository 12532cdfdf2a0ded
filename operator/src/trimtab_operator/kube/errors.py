"""What a request to the Kubernetes API can end in, as types a caller can tell apart."""

from __future__ import annotations


class ApiError(Exception):
    """Base: a request that failed.

    status: HTTP status, 0 when there was no answer; reason: the API server's own word, such as ``AlreadyExists``;
    retry_after: seconds the server asked us to wait, 0 if it did not.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = 0.0


class NotFoundError(ApiError):
    """404: there is no such object, or no such kind (yet)."""


class ConflictError(ApiError):
    """409: the resourceVersion is out of date, or (`reason` AlreadyExists) the name is taken."""


class GoneError(ApiError):
    """410: the resourceVersion or continue token is older than what the server keeps. List again."""


class RefusedError(ApiError):
    """Another 4xx: the request itself is wrong or not allowed, and would be so again."""


class ApiUnavailableError(ApiError):
    """No usable answer within the time allowed: refused or reset connections, timeouts, 429, 5xx."""


class FencedError(ApiError):
    """Held back before it was sent: this process does not lead, so it may not write (`cluster.fence`)."""


class ConnectionSettingsError(ApiError):
    """There is no way to the API server: no kubeconfig and no service account, or one that can't be read."""


_BY_STATUS: dict[int, type[ApiError]] = {404: NotFoundError, 409: ConflictError, 410: GoneError}


def error_for(status: int, reason: str, message: str) -> ApiError:
    """The error that stands for an HTTP status of 400 or more."""
    fallback = ApiUnavailableError if status == 429 or status >= 500 else RefusedError  # noqa: PLR2004
    return _BY_STATUS.get(status, fallback)(message, status=status, reason=reason)
