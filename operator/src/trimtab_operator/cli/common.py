"""What the program is called here: `trimtab`, or `kubectl trimtab` where kubectl started it as its plugin."""

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
