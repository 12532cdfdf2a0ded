"""Broker versions in the order of semantic versioning 2.0: ``4.2.4-SNAPSHOT`` comes before ``4.2.4``."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from trimtab_strategies.model.cluster_load import BoolArray

_NUMBER = r"(0|[1-9]\d*)"
_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_IDENTIFIERS}))?(?:\+{_IDENTIFIERS})?")

Precedence = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]
"""A sort key: the three numbers, whether it is a release (after its pre-releases), the parts of the pre-release."""


class UnknownVersionError(ValueError):
    """A version that can't be compared. The message names it."""


def precedence(version: str) -> Precedence:
    """Position of a version in the order; build metadata does not count. Raises `UnknownVersionError`."""
    match = _VERSION.fullmatch(version)
    if match is None:
        raise UnknownVersionError(f"version {version!r} can't be compared: use three numbers, such as 4.2.4")
    major, minor, patch, pre = match.groups()
    return int(major), int(minor), int(patch), pre is None, tuple(map(_part, pre.split(".") if pre else ()))


def _part(text: str) -> tuple[bool, int, str]:
    """A part of a pre-release: numbers come before words."""
    return (False, int(text), "") if text.isdigit() else (True, 0, text)


def latest(versions: Sequence[str]) -> BoolArray:
    """Which of the versions (k,) are the latest. Raises `UnknownVersionError` if one can't be compared."""
    places = [precedence(version) for version in versions]
    newest = max(places, default=None)
    return np.array([place == newest for place in places], dtype=bool)
