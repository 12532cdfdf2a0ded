"""The registry: strategies by name, their parameters checked, and what each of them says about itself."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from trimtab_strategies.params import Compatibility, StrategyParams, pulsar_keys
from trimtab_strategies.placement.least_resource_usage import LeastResourceUsageWithWeightParams
from trimtab_strategies.registry import (
    PLACEMENTS,
    SHEDDERS,
    SPLITTERS,
    InvalidParamsError,
    Row,
    UnknownStrategyError,
    pair,
)
from trimtab_strategies.shedding.threshold import ThresholdShedderParams

TABLES = {"shedder": SHEDDERS, "placement": PLACEMENTS, "splitter": SPLITTERS}
PULSAR, HERMES = "org.apache.pulsar.broker.loadbalance.", "pl.allegro.tech.hermes."
BOUNDS = {"pattern", "minimum", "exclusiveMinimum", "maxItems", "$ref"}
ROWS: dict[str, Row[Any]] = {f"{kind} {name}": row for kind, table in TABLES.items() for name, row in table.items()}


def test_names_are_those_users_know() -> None:
    pulsar = {"ThresholdShedder", "OverloadShedder", "UniformLoadShedder", "AvgShedder"}
    assert pulsar <= set(SHEDDERS)
    placing = {"LeastLongTermMessageRate", "LeastResourceUsageWithWeight", "RoundRobin", "AvgShedder"}
    assert {*placing, "ExtensibleLeastResourceUsageWithWeight"} <= set(PLACEMENTS)
    assert {"BundleSplitterTask", "DefaultNamespaceBundleSplitStrategy", "WeightedSplitter"} <= set(SPLITTERS)


def test_pair_is_built_from_camel_case_parameters() -> None:
    made = pair("ThresholdShedder", {"threshold": 20, "cpuWeight": 2}, "LeastResourceUsageWithWeight", {})

    assert made.shedder.params == ThresholdShedderParams(threshold=20, cpu_weight=2)  # type: ignore[attr-defined]
    assert made.weights.cpu == 2


def test_parameters_may_be_given_as_values() -> None:
    tuned = LeastResourceUsageWithWeightParams(average_difference=5)

    made = pair("ThresholdShedder", ThresholdShedderParams(), "LeastResourceUsageWithWeight", tuned)

    assert made.placement.params == tuned  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("Threshold", "LeastResourceUsageWithWeight"), "shedder 'Threshold' is unknown, use one of AvgShedder, "),
        (("ThresholdShedder", "Least"), "placement 'Least' is unknown, use one of Avg"),
    ],
)
def test_unknown_name_is_answered_with_the_known_ones(names: tuple[str, str], told: str) -> None:
    with pytest.raises(UnknownStrategyError) as error:
        pair(names[0], {}, names[1], {})

    assert str(error.value).startswith(told)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"threshold": 250}, "threshold: Input should be less than or equal to 100 (got 250)"),
        ({"threshold": 0}, "threshold: Input should be greater than 0 (got 0)"),
        ({"historyPercent": 150}, "historyPercent: Input should be less than or equal to 100 (got 150)"),
        ({"threshhold": 10}, "threshhold: Extra inputs are not permitted (got 10)"),
        ({"cpuWeight": "much"}, "cpuWeight: Input should be a valid number"),
        ({"minThroughput": float("nan")}, "minThroughput: "),
    ],
)
def test_bad_parameter_is_named_with_its_value_and_bound(params: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidParamsError) as error:
        pair("ThresholdShedder", params, "LeastResourceUsageWithWeight", {})

    assert str(error.value).startswith(f"ThresholdShedder: {told}")


@pytest.mark.parametrize("name", ROWS)
def test_every_parameter_has_a_bound_a_default_and_pulsar_s_key(name: str) -> None:
    model: type[StrategyParams] = ROWS[name].params
    schema = model.model_json_schema()
    tunable = {field: text for field, text in schema["properties"].items() if field != "compatibility"}

    if ROWS[name].original.startswith(PULSAR):
        assert {key.name for key in pulsar_keys(model).values()} == set(model.model_fields) - {"compatibility"}
    for field, described in tunable.items():
        assert "default" in described, field
        assert described.get("type") == "boolean" or BOUNDS & described.keys(), field
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("name", ROWS)
def test_every_strategy_s_module_teaches(name: str) -> None:
    """Idea, formula, when it helps, when it hurts, source."""
    text = importlib.import_module(ROWS[name].build.__module__).__doc__ or ""

    assert all(part in text for part in ("Idea.", "Formula.", "When it helps.", "When it hurts.", "Source.")), text


@pytest.mark.parametrize("name", ROWS)
def test_defects_are_listed_where_they_can_be_switched(name: str) -> None:
    row = ROWS[name]
    switch = row.params.model_fields.get("compatibility")

    assert (switch is not None) == bool(row.defects)
    advised = Compatibility.CORRECTED if row.original.startswith(HERMES) else Compatibility.JAVA
    assert switch is None or switch.default is advised
    assert all(text.endswith(".") for defect in row.defects for text in defect)


@pytest.mark.parametrize("name", ROWS)
def test_every_row_says_what_it_is_and_of_what_it_is_a_copy(name: str) -> None:
    own = {"splitter WeightedSplitter", "shedder Trim", "placement Trim", "splitter Trim"}
    assert (name in own) == (not ROWS[name].original)
    assert not ROWS[name].original or ROWS[name].original.startswith((PULSAR, HERMES))
    assert ROWS[name].summary.endswith(".")
