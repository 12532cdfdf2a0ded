"""Of the bundles of a TopicNamespace each hash belongs to one: what is missing, and what is there twice, is found."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from records import bundle
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.state import hash_rings
from trimtab_operator.state.hash_rings import HashRings, Ring, examine

END = 0xFFFFFFFF


def part(name: str, lower: int, upper: int, owner: str = "", **changes: object) -> BundleRecord:
    """A bundle of the hashes from `lower` up to `upper`, served by `owner`."""
    return bundle(name, owner, lower=f"0x{lower:08x}", upper=f"0x{upper:08x}", **{"controller": "uid", **changes})


def of(*parts: BundleRecord) -> Mapping[str, BundleRecord]:
    return {record.name: record for record in parts}


def halves(**changes: object) -> tuple[BundleRecord, BundleRecord]:
    return part("low", 0, 0x80000000, "x", **changes), part("high", 0x80000000, END, "y", **changes)


def test_a_ring_that_bundles_cover_once_is_whole() -> None:
    assert examine(of(*halves())) == Ring(bundles=2)
    assert examine(of(*halves())).whole


def test_a_hole_is_found_with_its_range() -> None:
    low, _ = halves()

    assert examine(of(low)).gaps == (("0x80000000", "0xffffffff"),)


def test_holes_before_between_and_after_are_all_found() -> None:
    ring = examine(of(part("a", 0x10, 0x20), part("b", 0x30, 0x40)))

    assert [int(lower, 16) for lower, _ in ring.gaps] == [0, 0x20, 0x40]
    assert [int(upper, 16) for _, upper in ring.gaps] == [0x10, 0x30, END]


def test_a_namespace_without_bundles_has_nothing_but_a_hole() -> None:
    assert examine({}).gaps == (("0x00000000", "0xffffffff"),)


NEWCOMERS = {
    "inside one": (0x10, 0x20, "low"),
    "over the edge of both": (0x70000000, 0x90000000, "high"),
    "the same range": (0, 0x80000000, "low"),
    "the whole ring": (0, END, "high"),
}


@pytest.mark.parametrize(("lower", "upper", "other"), NEWCOMERS.values(), ids=NEWCOMERS)
def test_a_newcomer_that_overlaps_has_no_place_and_those_in_place_stay(lower: int, upper: int, other: str) -> None:
    ring = examine(of(part("a-newcomer", lower, upper), *halves()))

    assert ring.overlaps == {"a-newcomer": other}
    assert ring.gaps == ()


SENIORS = {
    "one that is served comes first": ({"controller": "", "created": "2"}, {"owner": "", "created": "1"}),
    "then one that its TopicNamespace made": (
        {"owner": "", "created": "2"},
        {"controller": "", "owner": "", "created": "1"},
    ),
    "then the older one": ({"owner": "", "created": "1"}, {"owner": "", "created": "2"}),
}


@pytest.mark.parametrize(("first", "second"), SENIORS.values(), ids=SENIORS)
def test_of_two_the_place_goes_to_the_senior(first: dict[str, str], second: dict[str, str]) -> None:
    one = part("z", 0, END, **{"owner": "x", **first})
    other = part("a", 0, END, **{"owner": "x", **second})

    assert examine(of(one, other)).overlaps == {"a": "z"}


def test_children_do_not_count_while_their_parent_exists_and_do_when_it_is_gone() -> None:
    low, high = halves()
    children = part("c1", 0, 0x40000000, "x", parent="low"), part("c2", 0x40000000, 0x80000000, "x", parent="low")

    assert examine(of(low, high, *children)).whole
    assert examine(of(high, *children)).whole


spans = st.tuples(st.integers(0, 8), st.integers(0, 8)).filter(lambda span: span[0] < span[1])
drawn = st.lists(st.tuples(spans, st.booleans()), max_size=12)


@given(drawn)
def test_each_hash_has_at_most_one_bundle_in_place_and_is_in_a_gap_if_it_has_none(
    found: list[tuple[tuple[int, int], bool]],
) -> None:
    step = END // 8
    edges = [*(step * i for i in range(8)), END]
    parts = of(*(part(f"b{i}", edges[a], edges[b], "x" if served else "") for i, ((a, b), served) in enumerate(found)))

    ring = examine(parts)

    in_place = [b for b in parts.values() if b.name not in ring.overlaps]
    gaps = {(int(lower, 16), int(upper, 16)) for lower, upper in ring.gaps}
    for lower, upper in pairwise(edges):
        holders = sum(int(b.lower, 16) <= lower and upper <= int(b.upper, 16) for b in in_place)
        missing = sum(low <= lower and upper <= high for low, high in gaps)
        assert holders + missing == 1
    for name, other in ring.overlaps.items():
        assert other not in ring.overlaps
        assert max(parts[name].lower, parts[other].lower) < min(parts[name].upper, parts[other].upper)


def see_all(rings: HashRings, parts: Mapping[str, BundleRecord]) -> None:
    for record in parts.values():
        rings.update(None, record)


def test_what_is_followed_change_by_change_is_what_one_look_finds() -> None:
    chance, rings, parts = random.Random(14), HashRings(), dict[str, BundleRecord]()
    step = END // 8

    async def scenario() -> None:
        for run in range(400):
            name, lower = f"b{chance.randrange(12)}", chance.randrange(8)
            upper = END if lower == 7 else step * chance.randrange(lower + 1, 8)
            before, owner = parts.pop(name, None), chance.choice(["", "x"])
            after = part(name, step * lower, upper, owner, parent=chance.choice(["", "b1"]), resource_version=str(run))
            rings.update(before, now := None if chance.random() < 0.3 else after)
            if now is not None:
                parts[name] = now
            await rings.examined()
            assert rings.faulty.get("t-n", Ring(len(parts))) == (examine(parts) if parts else Ring(0))

    asyncio.run(scenario())


def test_a_bundle_that_was_made_again_in_another_namespace_leaves_the_first() -> None:
    async def scenario() -> None:
        rings, (low, high) = HashRings(), halves()
        see_all(rings, of(low, high))
        rings.update(low, part("low", 0, END, topic_namespace="other", resource_version="9"))
        await rings.examined()

        assert rings.faulty["t-n"].gaps == (("0x00000000", "0x80000000"),)
        assert rings.members("other").keys() == {"low"}

    asyncio.run(scenario())


def test_what_a_cancelled_examination_covered_is_examined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_rings, "MANY", 1)
    cancelled, examined = threading.Event(), hash_rings._examined
    monkeypatch.setattr(hash_rings, "_examined", lambda found: cancelled.wait(10) and examined(found))
    rings = HashRings()
    for record in halves():
        rings.update(None, record)
    rings.update(None, part("newcomer", 0, 0x40000000))

    async def scenario() -> None:
        looking = asyncio.create_task(rings.examined())
        await asyncio.sleep(0)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        cancelled.set()
        assert looking.cancelled()
        assert not rings.faulty
        await rings.examined()

    asyncio.run(scenario())
    assert rings.overlaps(part("newcomer", 0, 0x40000000))


def test_a_change_among_60_000_bundles_costs_what_its_own_namespace_costs() -> None:
    async def scenario() -> None:
        rings, step = HashRings(), END // 60
        parts = [
            part(f"n{n}-{i}", step * i, END if i == 59 else step * (i + 1), "x", topic_namespace=f"n{n}")
            for n in range(1000)
            for i in range(60)
        ]
        see_all(rings, of(*parts))
        await rings.examined()
        begun = time.perf_counter()
        await rings.examined()
        rings.update(parts[0], None)
        await rings.examined()

        assert time.perf_counter() - begun < 0.005
        assert rings.faulty.keys() == {"n0"}

    asyncio.run(scenario())
