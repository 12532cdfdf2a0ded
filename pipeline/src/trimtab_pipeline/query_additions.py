"""What users add to every query: matchers of labels, and URL parameters.

Matchers tell several clusters in one store apart. Parameters choose a tenant, or set what a server does with a query.
The values of parameters are in URLs, which servers and proxies log, so no secret belongs there. Our own texts do not
show them either.
"""

from __future__ import annotations

import re

LABEL = r"[A-Za-z_][A-Za-z0-9_]*"
"""Regular expression for the name of a label."""
PARAMETER = r"[A-Za-z_][A-Za-z0-9_.\[\]-]*"
"""Regular expression for the name of a parameter, such as ``extra_filters[]``."""
OUR_LABELS = ("__name__", "namespace", "pod", "container")
"""Labels that matchers can't name, because the queries select by them."""
OUR_PARAMETERS = ("query", "time", "timeout", "start", "end", "step", "partial_response")
"""Parameters that a user can't set. ``partial_response`` has a setting of its own."""
LONGEST_VALUE = {"matcher": 256, "parameter": 1024}
"""Maximum number of characters of a value."""


def check_label(setting: str, label: str) -> None:
    """Raise `ValueError` if `label` is not the name of a label."""
    if re.fullmatch(LABEL, label) is None:
        raise ValueError(f"{setting} {label!r} is not a label name: use letters, digits and _")


def check_matcher(label: str, value: str) -> None:
    """Raise `ValueError` for a label, or a value of it, that selectors can't have in addition."""
    check_label("matcher", label)
    if label in OUR_LABELS:
        raise ValueError(f"matcher {label!r} is set by Trimtab: name another label, such as cluster")
    _check_value("matcher", label, value)


def check_parameter(name: str, value: str) -> None:
    """Raise `ValueError` for a parameter that queries can't have in addition. The message does not show the value."""
    if re.fullmatch(PARAMETER, name) is None:
        raise ValueError(f"parameter {name!r} is not a parameter's name: use letters, digits, _ . - and []")
    if name in OUR_PARAMETERS:
        instead = "use partialResponse" if name == "partial_response" else "leave it out"
        raise ValueError(f"parameter {name!r} is set by Trimtab: {instead}")
    _check_value("parameter", name, value)


def _check_value(kind: str, name: str, value: str) -> None:
    if len(value) > (most := LONGEST_VALUE[kind]):
        raise ValueError(f"{kind} {name!r} has a value of {len(value)} characters: use {most} at most")
