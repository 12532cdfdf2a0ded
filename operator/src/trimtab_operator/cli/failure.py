"""How a verb ends: exit codes, and the error that becomes one line."""

from __future__ import annotations

FINE = 0
FINDING = 1
USAGE = 2


class CommandError(Exception):
    """Wrong usage or input. The text is all a person sees: it names the value, the bound and the fix."""
