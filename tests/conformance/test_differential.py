"""The live comparison detects a different Java decision, unless Java does not agree with itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from differential import compare
from pulsar_oracle import Oracle

SEEDS = range(20)


def test_the_classes_as_they_are_agree(oracle: Oracle) -> None:
    found = compare("modular.OverloadShedder", SEEDS, oracle.ask)

    assert str(found) == "modular.OverloadShedder: 20 asked, 0 excused, 0 different"


def test_another_decision_is_a_difference_that_names_its_seed(oracle: Oracle) -> None:
    def keeps_one_more(scenario: Mapping[str, Any]) -> dict[str, Any]:
        answer = oracle.ask(scenario)
        for entry in answer["rounds"]:
            entry["unloads"] = {broker: bundles[1:] for broker, bundles in entry["unloads"].items()}
        return answer

    found = compare("modular.OverloadShedder", SEEDS, keeps_one_more)

    assert len(found.differences) > 5
    assert found.excused == 0
    assert found.differences[0].startswith("TRIMTAB_SEED=")
    assert "Java" in found.differences[0]


def test_a_decision_that_changes_with_names_is_excused_and_counted(oracle: Oracle) -> None:
    def takes_the_smallest_name(scenario: Mapping[str, Any]) -> dict[str, Any]:
        answer = oracle.ask(scenario)
        for entry in answer["rounds"]:
            entry["unloads"] = {min(scenario["brokers"]): []} if scenario["brokers"] else {}
        return answer

    found = compare("modular.OverloadShedder", SEEDS, takes_the_smallest_name)

    assert found.excused > 10


def test_an_error_of_ours_names_the_seed() -> None:
    def broken(scenario: Mapping[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError(scenario["id"])

    with pytest.raises(ZeroDivisionError) as caught:
        compare("modular.OverloadShedder", SEEDS, broken)

    assert caught.value.__notes__ == ["while comparing modular.OverloadShedder with TRIMTAB_SEED=0"]
