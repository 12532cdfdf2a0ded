"""What a policy remembers survives a restart unchanged, and nothing else is taken for it."""

from __future__ import annotations

import pytest

from trimtab_operator.control.memory import ForeignMemoryError, Remembered
from trimtab_strategies.model import Memory


def test_memory_comes_back_as_it_was_written() -> None:
    remembered = Remembered(Memory({"brokers": {"ema": {"x": 0.1 + 0.2}}}, {"turn": 3}), (1.5, 2.5), epoch=4)

    assert Remembered.from_json(remembered.to_json()) == remembered


def test_moves_of_more_than_an_hour_ago_no_longer_count() -> None:
    remembered = Remembered(moved_at=(0.0, 1000.0, 3500.0))

    assert remembered.moved_last_hour(now=4000.0) == 2
    assert remembered.moved(2, now=4000.0) == (1000.0, 3500.0, 4000.0, 4000.0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "shedder": {}}'])
def test_what_trimtab_did_not_write_is_refused(text: str) -> None:
    with pytest.raises(ForeignMemoryError):
        Remembered.from_json(text)
