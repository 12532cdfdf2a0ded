"""What the operator tells about itself: Prometheus metrics, and the HTTP page that serves them beside its health."""


class AddressInUseError(OSError):
    """The page can't be served at the address asked for; the text names it and the fix."""
