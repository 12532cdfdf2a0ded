"""What changes between two assignments of subscriptions to consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Diff:
    """By subscription the consumers that lose it and those that get it, ascending; untouched ones are left out."""

    deletions: Mapping[str, tuple[str, ...]]
    additions: Mapping[str, tuple[str, ...]]

    @property
    def rebalanced(self) -> tuple[str, ...]:
        """Subscriptions that change in any way, ascending."""
        return tuple(sorted({*self.deletions, *self.additions}))


def diff(before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> Diff:
    """What must be taken away and what must be given to get from `before` to `after` (holders by subscription)."""
    return Diff(_beyond(before, after), _beyond(after, before))


def _beyond(these: Mapping[str, Sequence[str]], those: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    found = {name: tuple(sorted(set(held) - set(those.get(name, ())))) for name, held in these.items()}
    return {name: rest for name, rest in found.items() if rest}
