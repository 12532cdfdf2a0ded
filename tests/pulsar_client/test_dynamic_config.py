"""Pulsar's own balancing, as its configuration shows it, and what is kept of it."""

from __future__ import annotations

import asyncio
import json

import pytest

from pulsar_in_memory import InMemoryPulsar
from trimtab_operator.pulsar.client.dynamic_config import (
    ENABLED,
    SHEDDING,
    SPLITTING,
    ForeignFindingsError,
    FoundSettings,
    described,
    is_true,
    resets_removed,
    switched_on,
)
from trimtab_operator.pulsar.own_balancer.restore import restore_settings
from trimtab_operator.resources.pulsar import PulsarSpec

SPEC = PulsarSpec(admin_url="http://pulsar:8080")


@pytest.mark.parametrize(
    ("text", "on"),
    [("true", True), ("TRUE", True), ("tRue", True), (" true", False), ("banana", False), ("1", False), ("", False)],
)
def test_a_text_is_true_where_java_takes_it_for_true(text: str, on: bool) -> None:  # noqa: FBT001  a column
    assert is_true(text) == on


@pytest.mark.parametrize(
    ("runtime", "on"),
    [
        ({SHEDDING: "true", SPLITTING: "true"}, (SHEDDING, SPLITTING)),
        ({SHEDDING: "false", SPLITTING: "true"}, (SPLITTING,)),
        ({SHEDDING: "false", SPLITTING: "false"}, ()),
        ({ENABLED: "false", SHEDDING: "true", SPLITTING: "false"}, ()),
        ({ENABLED: "false", SHEDDING: "true", SPLITTING: "true"}, (SPLITTING,)),
        ({SHEDDING: "false"}, None),
        ({}, None),
    ],
)
def test_a_broker_balances_by_itself_where_a_switch_is_on(runtime: dict[str, str], on: tuple[str, ...] | None) -> None:
    assert switched_on(runtime) == on


def test_what_is_on_is_reported_by_switch() -> None:
    on = {"b:1": (SHEDDING,), "a:1": (SHEDDING, SPLITTING)}
    assert described(on, 3) == f"{SPLITTING} is on at a:1; {SHEDDING} is on at a:1, b:1"
    assert described(on, 2) == f"{SPLITTING} is on at a:1; {SHEDDING} is on at all 2 brokers"


def test_at_most_two_brokers_are_named() -> None:
    on = dict.fromkeys(("a:1", "b:1", "c:1", "d:1"), (SHEDDING,))
    assert described(on, 5) == f"{SHEDDING} is on at a:1, b:1 and 2 more"
    assert described({"a:1": (SHEDDING,)}, 1) == f"{SHEDDING} is on at a:1"


def test_what_was_found_is_read_back_as_it_was_stored() -> None:
    found = FoundSettings(SPEC).noting([SHEDDING, SPLITTING], {SPLITTING: "true"}).undone_again(100.0)
    assert found.overrides == {SHEDDING: None, SPLITTING: "true"}
    assert FoundSettings.from_json(found.to_json()) == found
    written = found.having_written({SHEDDING: "false"})
    assert FoundSettings.from_json(written.to_json()) == written


def test_another_url_is_of_the_same_cluster_where_it_shows_a_known_broker() -> None:
    other, found = PulsarSpec(admin_url="https://proxy:8443"), FoundSettings(SPEC, brokers=frozenset({"a:1", "b:1"}))
    assert found.of(other, {"b:1", "c:1"})
    assert not found.of(other, {"c:1"})
    assert found.of(SPEC, {"c:1"})
    assert not FoundSettings(SPEC).of(other, {"a:1"})
    assert FoundSettings.from_json(found.to_json()) == found


def test_what_was_stored_without_saying_so_counts_as_written() -> None:
    stored = json.loads(FoundSettings(SPEC).noting([SHEDDING], {}).to_json())
    del stored["written"]
    assert FoundSettings.from_json(json.dumps(stored)).written == {SHEDDING}


def test_what_was_found_first_is_not_overwritten() -> None:
    found = FoundSettings(SPEC).noting([SHEDDING], {SHEDDING: "TRUE"})
    assert found.noting([SHEDDING], {SHEDDING: "false"}).overrides == {SHEDDING: "TRUE"}


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version": 2, "overrides": {}, "pulsar": {"adminUrl": "http://a"}}']
)
def test_what_trimtab_did_not_write_is_refused(text: str) -> None:
    with pytest.raises(ForeignFindingsError):
        FoundSettings.from_json(text)


def test_nothing_but_the_two_switches_is_put_back() -> None:
    foreign = json.loads(FoundSettings(SPEC).noting([SHEDDING], {}).to_json())
    foreign["overrides"] |= {"superUserRoles": "eve", "brokerShutdownTimeoutMs": None}
    with pytest.raises(ForeignFindingsError):
        FoundSettings.from_json("[" * 100_000)
    with pytest.raises(ForeignFindingsError) as refused:
        FoundSettings.from_json(json.dumps(foreign))
    assert str(refused.value) == (
        f"it names brokerShutdownTimeoutMs and superUserRoles, but Trimtab restores only {SHEDDING} and {SPLITTING}"
    )
    with pytest.raises(ForeignFindingsError, match="superUserRoles"):
        FoundSettings(SPEC, {"superUserRoles": "eve"})


def test_what_is_about_to_be_written_counts_as_written_only_afterwards() -> None:
    found = FoundSettings(SPEC).noting([SHEDDING, SPLITTING], {})
    assert found.written == frozenset()
    written = found.having_written({SHEDDING: "false", SPLITTING: "false"})
    assert written.written == {SHEDDING, SPLITTING}
    assert written.noting([SHEDDING], {}).written == {SPLITTING}


def test_an_hour_later_it_counts_no_more() -> None:
    found = FoundSettings(SPEC).undone_again(0.0).undone_again(10.0)
    assert found.undone_lately(3599.0) == (0.0, 10.0)
    assert found.undone_again(3605.0).undone == (10.0, 3605.0)


def test_what_another_client_set_since_is_left_as_it_is() -> None:
    found = FoundSettings(SPEC).noting([SHEDDING, SPLITTING], {})
    pulsar = InMemoryPulsar(dynamic={SHEDDING: "true", SPLITTING: "false"})

    done = asyncio.run(restore_settings(pulsar, found))  # type: ignore[arg-type]  it needs no more of an Admin

    assert pulsar.dynamic == {SHEDDING: "true"}
    assert pulsar.written == [f"drop {SPLITTING}"]
    assert done == [
        f"{SPLITTING}: dynamic value removed, each broker's file applies again",
        f"{SHEDDING} stays as it is (true)",
    ]


def test_a_dynamic_value_is_put_back_as_it_was() -> None:
    found = FoundSettings(SPEC).noting([SHEDDING], {SHEDDING: "TRUE"})
    pulsar = InMemoryPulsar(dynamic={SHEDDING: "false"})

    asyncio.run(restore_settings(pulsar, found, dry_run=True))  # type: ignore[arg-type]
    assert pulsar.dynamic == {SHEDDING: "false"}
    asyncio.run(restore_settings(pulsar, found))  # type: ignore[arg-type]
    asyncio.run(restore_settings(pulsar, found))  # type: ignore[arg-type]

    assert pulsar.written == [f"{SHEDDING}=TRUE"]


@pytest.mark.parametrize(
    ("version", "resets"),
    [
        ("2.9.5", False),
        ("2.10.6", False),
        ("2.10.7", True),
        ("2.11.4", False),
        ("3.0.4", False),
        ("3.0.5", True),
        ("3.0.10", True),
        ("3.1.3", False),
        ("3.2.2", False),
        ("3.2.3-SNAPSHOT", True),
        ("3.3.0", True),
        ("4.0.8", True),
        ("10.0.0", True),
        ("", False),
        ("unknown", False),
    ],
)
def test_brokers_that_reset_a_removed_value_are_known_by_their_version(version: str, resets: bool) -> None:  # noqa: FBT001
    assert resets_removed(version) is resets


def test_a_switch_is_set_where_a_broker_would_keep_the_removed_value() -> None:
    found = FoundSettings(SPEC).noting([SHEDDING, SPLITTING], {SPLITTING: "TRUE"})
    pulsar = InMemoryPulsar(dynamic={SHEDDING: "false", SPLITTING: "false"}, versions={"b": "3.0.4"})
    for name in "abc":
        pulsar.broker(name)

    done = asyncio.run(restore_settings(pulsar, found))  # type: ignore[arg-type]

    assert pulsar.dynamic == {SHEDDING: "true", SPLITTING: "TRUE"}
    assert done[1] == f"{SHEDDING} = true, as b (3.0.4) would keep a removed value until a restart"
    again = asyncio.run(restore_settings(pulsar, found))  # type: ignore[arg-type]
    assert again[1] == f"{SHEDDING} stays as it is (true)"
