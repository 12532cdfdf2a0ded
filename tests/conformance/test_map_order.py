"""Decisions that depend on the order of Java's hash maps are distinguished from those that do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from map_order import decisions, sensitivity

WORLD = {
    "id": "x#1",
    "algorithm": "modular.OverloadShedder",
    "conf": {},
    "brokers": {"a:8080": {"cpu": [95, 100], "bundles": ["t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"]}},
    "bundles": {"t/n/0x00000000_0x80000000": {}, "t/n/0x80000000_0xffffffff": {}},
    "rounds": [{}],
}


def _answer(*bundles: str) -> dict[str, Any]:
    return {"rounds": [{"unloads": {"a:8080": list(bundles)}, "state": {"ema": {"a:8080": 0.95}}}]}


def _first_listed(scenario: Mapping[str, Any]) -> dict[str, Any]:
    ((broker, entry),) = scenario["brokers"].items()
    return {"rounds": [{"unloads": {broker: [entry["bundles"][0]]}}]}


def _all_listed(scenario: Mapping[str, Any]) -> dict[str, Any]:
    ((broker, entry),) = scenario["brokers"].items()
    return {"rounds": [{"unloads": {broker: entry["bundles"]}}]}


def _by_value(scenario: Mapping[str, Any]) -> dict[str, Any]:
    return {"rounds": [{"unloads": {name: [] for name, of in scenario["brokers"].items() if of["cpu"][0] > 90}}]}


def test_a_choice_by_position_hangs_on_order() -> None:
    found = sensitivity(WORLD, _first_listed, 20)

    assert found["order_sensitive"] == "yes"
    assert (
        len(found["alternatives"]) == 1
    )  # of the two possible decisions, the one that the names as written do not give


def test_all_in_the_listed_order_hang_on_it_only_within() -> None:
    found = sensitivity(WORLD, _all_listed, 20)

    assert found["order_sensitive"] == "within"
    (alternative,) = found["alternatives"]
    assert alternative == [{"unloads": {"a:8080": ["t/n/0x80000000_0xffffffff", "t/n/0x00000000_0x80000000"]}}]


def test_a_choice_by_value_does_not_hang_on_order() -> None:
    assert sensitivity(WORLD, _by_value, 20) == {"order_sensitive": "no"}


def test_scenarios_whose_order_is_their_input_are_asked_once() -> None:
    asked = []

    found = sensitivity({**WORLD, "algorithm": "modular.RoundRobinBrokerSelector"}, lambda s: asked.append(s) or {}, 9)

    assert found == {"order_sensitive": "no"}
    assert asked == []


def test_sums_are_no_decision() -> None:
    assert decisions(_answer("b")) == [{"unloads": {"a:8080": ["b"]}}]
    assert decisions({"splits": {"b": "a:8080"}}) == [{"splits": {"b": "a:8080"}}]
