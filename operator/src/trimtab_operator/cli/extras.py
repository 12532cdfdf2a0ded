"""Packages that a plain installation leaves out, and the extra that installs each.

Every start loads this module, before it is known which packages are there. Verbs of other packages use it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from trimtab_operator.cli.common import CommandError

_APART = "optimum"  # no other extra includes it

EXTRAS: Mapping[str, str] = {
    "highspy": _APART,
    "pyarrow": "measure",
    "prometheus_api_client": "measure",
    "kopf": "operator",
    "pandas": "operator",
    "py4j": "operator",
    "pyspark": "operator",
}
"""The smallest extra that installs a package, by the package's name in Python."""


def missing(verb: str, package: str, extra: str) -> str:
    """The error of a verb that needs a package, and how to install it with an extra."""
    return (
        f"{verb} needs {package}, which is not installed; "
        f"install it with: pip install 'WHEEL[{extra}]', with the path of your wheel of trimtab"
    )


def extra_of(error: ImportError) -> str | None:
    """The extra that installs what could not be imported; None if no extra does."""
    return EXTRAS.get((error.name or "").partition(".")[0])


def require(verb: str, extra: str) -> None:
    """Raise `CommandError` unless all packages of an extra are installed that a verb needs later."""
    for package, of in EXTRAS.items():
        if of != _APART and find_spec(package) is None:
            raise CommandError(missing(verb, package, extra))
