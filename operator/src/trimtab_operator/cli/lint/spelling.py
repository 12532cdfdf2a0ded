"""What a person probably meant by a value that the schema refuses: another unit, another spelling, Pulsar's own name.

Each function returns the value to write, or an empty text if that is not certain. A suggestion always has the same
meaning as the value: bits are not bytes, and ``1,5M`` may be two numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from trimtab_operator.resources.urls import RefusedUrlError, parse, safe_text
from trimtab_strategies.params import AMOUNT, AMOUNT_ABOVE_ZERO, DURATION, as_duration
from trimtab_strategies.registry import PLACEMENTS, SHEDDERS, SPLITTERS, Row

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SECONDS: Mapping[str, Decimal] = {
    name: Decimal(size)
    for size, names in {
        "0.001": "ms milli millis millisecond milliseconds",
        "1": "s sec secs second seconds",
        "60": "m min mins minute minutes",
        "3600": "h hr hrs hour hours",
        "86400": "d day days",
        "604800": "w week weeks",
    }.items()
    for name in names.split()
}
_LONGEST = 32
"""Maximum number of characters of a value that is read, and of a quantity."""


def duration_meant(text: str) -> str:
    """A duration in other units, such as ``1d``, ``1.5h``, ``5 min`` or ``PT5M``."""
    plain = text.lower().strip()
    if plain.startswith("p"):  # ISO 8601: an M before the T is a month
        date, _, time = plain[1:].partition("t")
        plain = "" if "m" in date else date + time
    parts = re.findall(rf"({_NUMBER})\s*([a-z]+)[\s,]*", plain)
    if re.sub(rf"{_NUMBER}\s*[a-z]+[\s,]*", "", plain) or not parts or {unit for _, unit in parts} - {*_SECONDS}:
        return ""
    total = sum((Decimal(number) * _SECONDS[unit] for number, unit in parts), Decimal(0))
    return as_duration(float(total)) if total > 0 and total == int(total) else ""


_PREFIX = re.compile(rf"({_NUMBER}(?:e\+?[0-9]{{1,2}})?)\s*([kmgtpe]?)(i?)(b|bytes?)?(?:/s|ps)?", re.IGNORECASE)


def quantity_meant(text: str) -> str:
    """A quantity in another spelling, such as ``1MB``, ``10 Mi``, ``1K``, ``1e3`` or ``1,000,000``."""
    plain = text.strip()
    if re.fullmatch(r"[0-9]{1,3}([,_ ][0-9]{3})+", plain):
        return re.sub(r"[,_ ]", "", plain)
    if (found := _PREFIX.fullmatch(plain)) is None:
        return ""
    number, prefix, binary, unit = found.groups()
    if (prefix, binary) == ("m", "") and not unit:  # thousandths
        return ""
    letter = "k" if prefix.lower() == "k" and not binary else prefix.upper()
    if binary and not letter:
        return ""
    amount = Decimal(number)
    whole = f"{amount:.0f}" if amount == int(amount) else f"{amount.normalize():f}"
    meant = f"{whole}{letter}{'i' if binary else ''}"
    return meant if re.fullmatch(AMOUNT, meant) and len(meant) <= _LONGEST else ""


def number_meant(text: str) -> str:
    """A number in a text, such as ``"20"`` or ``50%``."""
    found = re.fullmatch(rf"\s*(-?{_NUMBER})\s*%?\s*", text)
    return found[1] if found else ""


def flag_meant(value: Any) -> str:
    """``true`` or ``false`` for a value such as ``"yes"`` or 0."""
    plain = str(value).strip().lower()
    return (
        "true"
        if plain in {"true", "yes", "on", "1", "y"}
        else "false"
        if plain in {"false", "no", "off", "0", "n"}
        else ""
    )


_TABLES: Mapping[str, Mapping[str, Row[Any]]] = {"shedder": SHEDDERS, "placement": PLACEMENTS, "split": SPLITTERS}


def choice_meant(text: str, choices: Iterable[Any]) -> str:
    """The one of `choices` that is spelt otherwise: other case, with dashes, or as a class with its package."""
    named, choices = text.strip(), list(map(str, choices))
    rows = [(name, row.original) for table in _TABLES.values() for name, row in table.items() if name in choices]
    plain = _letters(named.rpartition(".")[2])
    found = [
        *(name for name, original in rows if original == named),
        *(choice for choice in choices if _letters(choice) == plain),
        *(name for name, original in rows if original and _letters(original.rpartition(".")[2]) == plain),
    ]
    return found[0] if found and plain else ""


def elsewhere(text: str) -> str:
    """Where a strategy belongs that stands in the field of another kind; empty for any other text."""
    if text.strip().endswith(("LoadManagerImpl", "LoadManagerWrapper")):
        return "that is a load manager of Pulsar, which names no strategy: `trimtab migrate` reads broker.conf"
    for part, table in _TABLES.items():
        if name := choice_meant(text, table):
            return f"that belongs in spec.{part}: {{type: {name}}}"
    return ""


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


class Form(NamedTuple):
    """How values of a field look. words: with examples. meant: see above."""

    words: str
    meant: Callable[[str], str]


def _as_is(_text: str) -> str:
    return ""


FORMS: Mapping[str, Form] = {
    DURATION: Form("a duration in h, m and s, such as 90s, 5m or 1h30m", duration_meant),
    AMOUNT: Form("a quantity such as 500k, 10Mi or 1.5G", quantity_meant),
    AMOUNT_ABOVE_ZERO: Form("a quantity above 0, such as 500k, 10Mi or 1.5G", quantity_meant),
    r"^([01][0-9]|2[0-3]):[0-5][0-9]$": Form('a time of day such as "22:00"', _as_is),
    r"^[^/ ]+:[0-9]+$": Form("a host and a port, such as pulsar-broker-0.pulsar:8080", _as_is),
}
"""The forms of texts by the pattern in the schema."""


def is_url(pattern: str) -> bool:
    """Whether a pattern is that of URLs."""
    return pattern.startswith("^https?://")


def form_problem(text: str, pattern: str) -> str:
    """What is wrong with a text that does not match a field's pattern, and what to write; empty if that is unknown."""
    if is_url(pattern):
        return _url_problem(text)
    if (form := FORMS.get(pattern)) is None:
        return ""
    meant = form.meant(text) if len(text) <= _LONGEST else ""
    return f"write {meant} ({form.words})" if meant else f"write {form.words}"


def _url_problem(text: str) -> str:
    try:
        parse(text)
    except RefusedUrlError as error:
        return str(error)
    return f"write a URL such as {safe_text(text)}"
