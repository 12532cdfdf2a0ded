"""What a request to Pulsar's admin REST can end in, as types a caller can tell apart."""

from __future__ import annotations


class PulsarError(Exception):
    """Base: a request that failed. status: HTTP status, 0 when there was no answer."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class PulsarUnavailableError(PulsarError):
    """No usable answer: refused or reset connections, time-outs, too many redirects, 5xx of no own meaning."""


class PulsarRefusedError(PulsarError):
    """Another 4xx (401, 403, ...): the request is wrong or not allowed, and would be so again."""


class UnknownError(PulsarRefusedError):
    """404: there is no such tenant, namespace or broker."""


class UnownedError(PulsarRefusedError):
    """412 on a bundle: nobody serves it."""


class ExistsError(PulsarRefusedError):
    """409 on creation: it is there already."""


class StaleBundleError(PulsarRefusedError):
    """412 on a bundle: no bundle has exactly these boundaries (any more); it was split. Read the boundaries again."""


class InactiveDestinationError(PulsarRefusedError):
    """409 on an unload: the destination is not among the active brokers."""


class SameBrokerError(PulsarRefusedError):
    """The destination owns the bundle already (the extensible load manager says so; the modular one does not)."""


class SplitRefusedError(PulsarRefusedError):
    """Pulsar does not divide the bundle at these positions."""
