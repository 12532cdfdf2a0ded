"""Pulsar's own classes, for the tests that ask them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulsar_oracle import Oracle


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """A running oracle. That it was not built is an error, never a skip: `make oracle` does it."""
    with Oracle() as running:
        yield running
