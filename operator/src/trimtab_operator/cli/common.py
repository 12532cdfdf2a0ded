"""The program's name (`trimtab` or `kubectl trimtab`), exit codes, and the error that becomes one line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

NAME = "trimtab"

PLUGIN = "kubectl-trimtab"
"""The file that kubectl looks for on the PATH when somebody types ``kubectl trimtab``."""


_AS_COMMAND = re.compile(r"(?<![\w./-])trimtab(?= [a-zA-Z<-])")


def program() -> str:
    """``trimtab``, or ``kubectl trimtab``: what a person types."""
    return f"kubectl {NAME}" if Path(sys.argv[0]).name.startswith(PLUGIN) else NAME


def spoken(text: str) -> str:
    """`text` with commands as the person would type them here: ``trimtab plan`` is ``kubectl trimtab plan``."""
    name = program()
    return text if name == NAME else _AS_COMMAND.sub(name, text)


FINE = 0

FINDING = 1

USAGE = 2


class CommandError(Exception):
    """Wrong usage or input. The text is all a person sees: it names the value, the bound and the fix."""
