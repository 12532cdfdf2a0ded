"""Topics find their bundle on the ring as they do in Pulsar."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, strategies as st

from ring_check import check_ring
from trimtab_strategies.hash_ring import (
    LAST_HASH,
    BundleName,
    InvalidBundleNameError,
    bundle_names,
    default_boundaries,
    find_bundle,
    is_monitoring,
    parse_bundle,
    topic_hash,
)


def test_topic_hash_is_the_crc_of_the_full_name() -> None:
    assert topic_hash("persistent://public/default/topic1") == 0x5D3E22B7
    assert topic_hash("persistent://tenant/ns/tést") == 0x36C95B30
    assert topic_hash("non-persistent://public/default/my-topic") != topic_hash("persistent://public/default/my-topic")


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [0, 0xFFFFFFFF]),
        (3, [0, 0x55555555, 0xAAAAAAAA, 0xFFFFFFFF]),
        (4, [0, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF]),
        (16, [*range(0, 2**32, 2**28), 0xFFFFFFFF]),
        (7, [0, 0x24924924, 0x49249248, 0x6DB6DB6C, 0x92492490, 0xB6DB6DB4, 0xDB6DB6D8, 0xFFFFFFFF]),
    ],
)
def test_default_boundaries_are_equal_and_the_last_bundle_takes_the_rest(count: int, expected: list[int]) -> None:
    assert default_boundaries(count).tolist() == expected


def test_boundary_belongs_to_the_bundle_it_begins() -> None:
    assert find_bundle(default_boundaries(4), [0, 0x3FFFFFFF, 0x40000000, 0xFFFFFFFE]).tolist() == [0, 0, 1, 3]


def test_last_hash_is_in_the_last_bundle_unless_asked_as_pulsar_looks() -> None:
    assert find_bundle(default_boundaries(4), LAST_HASH) == 3
    assert find_bundle(default_boundaries(4), LAST_HASH, last_hash_included=False) == 4


@given(count=st.integers(1, 300), place=st.integers(0, LAST_HASH))
def test_every_hash_is_in_exactly_one_bundle(count: int, place: int) -> None:
    boundaries = default_boundaries(count).tolist()

    row = int(find_bundle(default_boundaries(count), place))

    assert boundaries[row] <= place
    assert place < boundaries[row + 1] or (place == LAST_HASH and row == count - 1)


def test_names_are_spelt_as_pulsar_spells_them_and_read_back() -> None:
    names = bundle_names("public/default", default_boundaries(2))

    assert names == ("public/default/0x00000000_0x80000000", "public/default/0x80000000_0xffffffff")
    assert parse_bundle(names[1]) == BundleName("public/default", 0x80000000, LAST_HASH)
    assert str(parse_bundle("tenant/cluster/ns/0x00000000_0xffffffff")) == "tenant/cluster/ns/0x00000000_0xffffffff"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "public/default",
        "0x00000000_0x80000000",
        "public/0x00000000_0x80000000",
        "public//0x00000000_0x80000000",
        "public/default/0x00000000-0x80000000",
        "public/default/0x0_0x80000000",
        "public/default/0x00000000_0x8000000G",
        "public/default/0x00000000_0xFFFFFFFF",
        "public/default/0x80000000_0x80000000",
        "public/default/0x80000000_0x40000000",
        "public/default/0x00000000_0x80000000\n",
    ],
)
def test_what_is_no_bundle_name_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidBundleNameError) as error:
        parse_bundle(name)

    assert repr(name) in str(error.value)


@pytest.mark.parametrize("boundaries", [[0], [0, 5], [1, LAST_HASH], [0, 7, 7, LAST_HASH], [0, 9, 7, LAST_HASH]])
def test_boundaries_that_make_no_ring_are_refused(boundaries: list[int]) -> None:
    with pytest.raises(InvalidBundleNameError, match="ascend"):
        find_bundle(boundaries, 0)


def test_a_namespace_has_at_least_one_bundle() -> None:
    with pytest.raises(InvalidBundleNameError, match="can't have 0 bundles"):
        default_boundaries(0)


@given(count=st.integers(1, 60), random=st.randoms(use_true_random=False))
def test_bundles_of_a_ring_give_its_boundaries_in_any_order(count: int, random: Random) -> None:
    boundaries = default_boundaries(count)
    names = list(bundle_names("t/n", boundaries))
    random.shuffle(names)

    assert check_ring(names) == boundaries.tolist()


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["t/n/0x00000000_0x80000000"],
        ["t/n/0x80000000_0xffffffff"],
        ["t/n/0x00000000_0x40000000", "t/n/0x80000000_0xffffffff"],
        ["t/n/0x00000000_0x80000000", "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"],
        ["t/n/0x00000000_0x80000000", "t/n/0x40000000_0xffffffff"],
        ["t/n/0x00000000_0xffffffff", "t/n/0x40000000_0x80000000"],
        ["t/n/0x00000000_0x80000000", "t/o/0x80000000_0xffffffff"],
    ],
)
def test_bundles_that_make_no_ring_are_refused(names: list[str]) -> None:
    with pytest.raises(AssertionError):
        check_ring(names)


@pytest.mark.parametrize(
    ("namespace", "monitoring"),
    [
        ("pulsar/cluster/broker-0:8080", True),
        ("pulsar/broker-0.pulsar.svc:8080", True),
        ("sla-monitor/cluster/broker-0:8080", True),
        ("pulsar/system", False),
        ("public/default", False),
        ("sla-monitor/broker-0:8080", True),
    ],
)
def test_a_broker_s_own_heartbeat_is_distinguished(namespace: str, monitoring: bool) -> None:  # noqa: FBT001 - a table
    assert is_monitoring(namespace) == monitoring
