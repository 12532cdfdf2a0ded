"""Telemetry of the operator: Prometheus metrics, and the HTTP server for metrics and health."""


class AddressInUseError(OSError):
    """The HTTP server can't listen on its address. The text names the address and the fix."""
