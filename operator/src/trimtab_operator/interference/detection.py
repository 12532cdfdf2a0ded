"""Bundles that come back again and again: which they are, and for how long they are left alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trimtab_operator.state.ownership_changes import ChangeKind, OwnershipChange

OFTEN = 3
"""Changes of owner within the cool-down from which on a bundle flaps, wherever it goes."""

MOST_QUARANTINED = 1000
"""Bundles remembered at once; of more, the ones that are let go soonest are forgotten."""


def flapping(history: Sequence[OwnershipChange], cool_down: float) -> str:
    """What is wrong with a bundle of this history (oldest first), in words; empty when it does not flap.

    cool_down: seconds, the policy's own; within it the policy moves no bundle twice, so that somebody else does. What
    people alone did is no flapping.
    """
    if not history:
        return ""
    last = history[-1]
    recent = [change for change in history if last.at - change.at <= cool_down]
    if all(change.kind is ChangeKind.DESIRED for change in recent):
        return ""
    if back := next((change for change in recent[:-1] if change.left == last.taken), None):
        return f"came back to {last.taken} {last.at - back.at:.0f} s after it had left"
    return f"changed its owner {len(recent)} times in {last.at - recent[0].at:.0f} s" if len(recent) >= OFTEN else ""


def quarantined(
    before: Mapping[str, float], flapped: Iterable[str], until: float, now: float, gone: Iterable[str]
) -> dict[str, float]:
    """By bundle, until when (epoch s) it is left alone: those of `before` whose time is not over, and `flapped`.

    gone: bundles that were let go by a person, or deleted. Nobody is left alone past `until`: the policy may ask for
    less by now, or the clock have been set back.
    """
    kept = {bundle: min(end, until) for bundle, end in before.items() if end > now}
    kept |= dict.fromkeys(flapped, until)
    for bundle in gone:
        kept.pop(bundle, None)
    return dict(sorted(kept.items(), key=lambda item: (item[1], item[0]))[-MOST_QUARANTINED:])


def owner_changes(changes: Iterable[OwnershipChange]) -> set[str]:
    """The bundles whose owner changed."""
    return {change.bundle for change in changes if change.kind not in {ChangeKind.OVERRULED, ChangeKind.OVERWRITTEN}}
