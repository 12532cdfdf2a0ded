"""Pulsar's own classes, for tests that compare with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulsar_oracle import Oracle


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """A running oracle. If it was not built, that is an error, never a skip: `make oracle` builds it."""
    with Oracle() as running:
        yield running
