"""The witnesses of a chaos round report every broken invariant; and a seed always gives the same schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from chaos_schedule import BROKERS, NO_DATA, Kind, draw
from chaos_trail import Caps, Deed, Span, blind, by_older_leaders, over
from chaos_witness import PARENT, Bundles, Served, holes

SERVES, ENDS = True, False
CAPS = Caps(cycle=2, broker=2, hour=3)


def bundle(lower: int, upper: int, *, parent: str = "", owner: str = "a", epoch: int = 1) -> dict[str, Any]:
    """A Bundle object of the namespace t-n; edges in sixteenths of the ring."""
    low, high = f"0x{lower << 28:08x}", "0xffffffff" if upper == 16 else f"0x{upper << 28:08x}"
    return {
        "metadata": {"name": f"t-n-{low}-{high}", "annotations": {PARENT: parent} if parent else {}},
        "spec": {"topicNamespace": "t-n", "range": {"lower": low, "upper": high}, "assignment": {"epoch": epoch}},
        "status": {"owner": owner},
    }


WHOLE = bundle(0, 16)
NAME = WHOLE["metadata"]["name"]


@pytest.mark.parametrize("measured", [True, False])
def test_a_seed_is_a_schedule(*, measured: bool) -> None:
    first, again = draw(7, 60.0, measured=measured), draw(7, 60.0, measured=measured)

    assert str(first) == str(again)
    assert first.events != draw(8, 60.0, measured=measured).events
    assert len(first.events) > 20
    assert all(event.at + event.seconds <= 60.01 for event in first.events)


def test_one_thing_has_one_fault_at_a_time() -> None:
    for seed in range(50):
        until = dict.fromkeys(BROKERS, 0.0)
        for event in draw(seed, 60.0, measured=True).events:
            if event.kind in {Kind.KILL_BROKER, Kind.LOSE_POD, Kind.DEAFEN_BROKER, Kind.MUTE_BROKER}:
                assert event.at >= until[event.target]
                until[event.target] = event.at + event.seconds


def test_many_seeds_have_everything() -> None:
    kinds = {event.kind for seed in range(40) for event in draw(seed, 60.0, measured=True).events}

    assert kinds | NO_DATA == set(Kind)


@pytest.mark.parametrize(
    ("ring", "told"),
    [
        ([WHOLE], ""),
        ([bundle(0, 8), bundle(8, 16)], ""),
        ([WHOLE, bundle(0, 8, parent=NAME), bundle(8, 16, parent=NAME)], ""),
        ([bundle(0, 8, parent=NAME), bundle(8, 16, parent=NAME)], ""),
        ([bundle(0, 8, parent=NAME)], "t-n: the ring ends at 0x80000000"),
        ([bundle(0, 8), bundle(9, 16)], "not covered is"),
        ([bundle(0, 9), bundle(8, 16)], "twice covered"),
        ([WHOLE, bundle(0, 8)], "twice covered"),
    ],
)
def test_every_hash_is_covered_once(ring: list[Mapping[str, Any]], told: str) -> None:
    assert told in holes(ring)
    assert bool(holes(ring)) == bool(told)


def test_two_brokers_that_serve_one_bundle_are_seen() -> None:
    served = Served(now=iter(range(100)).__next__)
    served.told("a", "t/n/0x00000000_0x80000000", SERVES)
    served.told("b", "t/n/0x80000000_0xffffffff", SERVES)
    served.told("a", "t/n/0x00000000_0x80000000", ENDS)
    served.told("b", "t/n/0x00000000_0x80000000", SERVES)
    assert not served.violations
    assert served.longest == (1, "t/n/0x00000000_0x80000000")

    served.told("a", "t/n/0x40000000_0x80000000", SERVES)

    assert served.violations == ["a serves t/n/0x40000000_0x80000000 while b serves t/n/0x00000000_0x80000000"]


def test_an_owner_that_changes_without_being_given_free_is_seen() -> None:
    seen = Bundles()
    seen.listed([WHOLE])
    seen.see("MODIFIED", bundle(0, 16, owner=""))
    seen.see("MODIFIED", bundle(0, 16, owner="b"))
    assert not seen.violations

    seen.see("MODIFIED", bundle(0, 16, owner="a"))
    seen.see("MODIFIED", bundle(0, 16, owner="a", epoch=2))
    seen.see("MODIFIED", bundle(0, 16, owner="a", epoch=1))
    seen.see("DELETED", WHOLE)

    assert seen.violations == [
        f"{NAME} went from b to a without being given free",
        f"{NAME}: epoch 1 was written over epoch 2",
    ]


def deed(version: int, user: str = "one", *, at: float = 0.0, name: str = NAME, reason: str = "Overloaded") -> Deed:
    """A move by `user` from broker a to broker b."""
    desired = {"owner": "b", "assignment": {"reason": reason}}
    return Deed(version, at, user, "patch", "bundles", name, desired, "a")


def test_an_older_leader_that_writes_later_is_seen() -> None:
    epochs = {"one": 1, "two": 2, "never": 0}
    assert not by_older_leaders([deed(1, "one"), deed(2, "two"), deed(3, "two"), deed(4, "one", name="other")], epochs)

    [late] = by_older_leaders([deed(1, "two"), deed(2, "one")], epochs)
    [standby] = by_older_leaders([deed(1, "never")], epochs)

    assert "one (epoch 1) wrote version 2 after two (epoch 2)" in late
    assert standby.startswith("never never led")


def test_more_moves_than_a_cap_are_seen() -> None:
    apart = [deed(n, at=n) for n in range(3)]
    assert not over(CAPS, apart)
    assert not over(CAPS, [*apart, deed(4, at=4, reason="BrokerLost")])

    assert over(CAPS, [*apart, deed(4, at=4)]) == ["4 moves within an hour, 3 are allowed"]
    cycle, *ends = over(CAPS, [deed(n, at=n / 100) for n in range(3)])
    assert cycle.startswith("3 moves in one cycle, 2 are allowed, by one at 0.00")
    assert [text.split(" in one")[0] for text in ends] == ["3 moves to b", "3 moves from a"]


def test_a_move_without_data_is_seen_unless_it_was_held_up() -> None:
    outage, cycle = (
        Span(1000.0, 1010.0),
        {"time": "1970-01-01T00:16:43Z", "seconds": 0.5, "moved": 1, "outcome": "Overloaded"},
    )
    fine = [deed(1, at=1001.0), deed(2, at=1011.0), deed(3, at=1005.0, reason="BrokerLost")]
    assert not blind(fine, [{**cycle, "moved": 0}], [outage], [])

    late = [deed(1, at=1005.0)]

    assert len(blind(late, [cycle], [outage], [])) == 2
    assert not blind(late, [cycle], [outage], [Span(999.0, 1004.0)])
    assert not blind([replace(late[0], verb="delete")], [], [outage], [])
