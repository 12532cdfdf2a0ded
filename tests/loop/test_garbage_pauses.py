"""The collector comes seldom and leaves a full picture alone, and what is replaced is freed all the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from trimtab_operator.aio import YOUNG, collect_seldom, freeze_heap


class Record:
    """Something that is kept."""


@pytest.fixture(autouse=True)
def _collector_as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_the_collector_comes_seldom_and_not_to_what_is_loaded() -> None:
    collect_seldom()

    assert gc.get_threshold()[0] == YOUNG
    assert gc.get_freeze_count() > 10_000


def test_a_full_snapshot_is_not_read_again() -> None:
    collect_seldom()
    picture = {n: Record() for n in range(1_000)}
    before = len(gc.get_objects())

    freeze_heap()

    assert len(picture) == 1_000
    assert len(gc.get_objects()) < before - 1_000


def test_what_is_replaced_is_freed_nevertheless() -> None:
    picture = {"b": Record()}
    freeze_heap()
    old = weakref.ref(picture["b"])

    picture["b"] = Record()

    assert old() is None
