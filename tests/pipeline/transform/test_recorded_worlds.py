"""The rules make of random worlds what they made of them before (`recorded_worlds` says how to change that)."""

from __future__ import annotations

from itertools import islice

import pytest

from recorded_worlds import KINDS, WORLDS, differences

QUICK = 40
"""Worlds that also a quick test replays."""
SHOWN = 20


@pytest.mark.parametrize("kind", KINDS)
def test_rules_are_as_they_were(kind: str) -> None:
    assert list(islice(differences(kind, range(QUICK)), SHOWN)) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_rules_are_as_they_were_in_all_worlds(kind: str) -> None:
    assert list(islice(differences(kind, range(QUICK, WORLDS)), SHOWN)) == []
