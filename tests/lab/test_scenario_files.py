"""Scenarios as files: the catalogue, the JSON schema, the documentation, and errors that say what to write."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from small_worlds import RNG, Still
from trimtab_lab.simulation import InvalidScenarioError, Scenario, build, catalogue, named, parsed, run
from trimtab_lab.simulation.scenario import CATALOGUE
from trimtab_lab.simulation.scenario_fields import Even

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "reference" / "scenario.schema.json"

GOOD = """\
title: T
description: D
machines:
  - {count: 3, usage: 0.5}
"""

BAD = {
    "rounds: 0": "rounds: is 0, but it must be at least 1: write 1 or more",
    "rounds: many": "rounds: is 'many', but it must be a whole number: write one",
    "landing: 99": "landing: is 99, but it must be at most 60: write 60 or less",
    "goal: up": "goal: is 'up', but it must be 'level' or 'still': write one of these",
    "round: 5": "round: there is no such field: write rounds, or leave it out",
    "tenants: []": "tenants: is empty, but there must be at least 1: add one",
    "tenants: [{skew: -1}]": "tenants[0].skew: is -1, but it must be at least 0: write 0 or more",
    "tenants: [{skw: 1}]": "tenants[0].skw: there is no such field: write skew, or leave it out",
    "tenants: [{message: [5, 2]}]": "message: is [5, 2], but the first must not be above the second: write [2, 5]",
    "tenants: [{share: [1, 2, 0]}]": "tenants[0].share[1]: is 2, but it must be at most 1: write 1 or less",
    "tenants: [{share: [1, 0]}]": "tenants[0].share: has 2 values for 3 brokers: give one each",
    "tenants: [{brokers: gold}]": "tenants[0].brokers: no group of machines is called 'gold': use numbers, as no group",
    "tenants: [{drift: {to: [1, 2]}}]": "tenants[0].drift.to: has 2 values for 3 brokers: give one each",
    "tenants: [{}, {}]": "tenants[1].name: is 'public/simulated' again: give each tenant a name of its own",
    "tenants: [{share: [1, 0, 1]}]": "machines: broker 1 has a usage, but no bundles",
    "tenants: [{steps: {every: [5, 9], factor: [2, 1]}}]": "factor: is [2, 1], but the first must not be above",
    "metrics: {noise: 2}": "metrics.noise: is 2, but it must be at most 1: write 1 or less",
    "metrics: {newest: 0}": "metrics.newest: is 0, but it must be above 0: write more than 0",
    "realism: {knee: {at: 1}}": "realism.knee.at: is 1, but it must be below 1: write less than 1",
    "events: [{event: leave, round: 2}]": "events[0].brokers: is missing: add it",
    "events: [{event: leave, brokers: [7], round: 2}]": "events[0].brokers: there is no broker 7: use 0 to 2",
    "events: [{event: leave, brokers: [1], round: 60}]": "events[0].round: is 60, but it must be at most 59, as",
    "events: [{event: leave, brokers: [1], round: 9, until: 9}]": "events[0].until: is 9, but it must be after round 9",
    "events: [{event: crash, brokers: [1], round: 9}]": "but it has an unknown event: write one of 'leave', 'join',",
    "events: [7]": "events[0]: is 7, but it must be a mapping: write one",
}
"""A line that makes the good scenario a bad one -> what the error says."""


def test_the_scenario_that_the_bad_ones_are_made_of_is_good() -> None:
    assert parsed(GOOD).count == 3


@pytest.mark.parametrize("line", BAD)
def test_an_error_names_field_value_bound_and_fix(line: str) -> None:
    with pytest.raises(InvalidScenarioError) as error:
        parsed(GOOD + line, "my.yaml")

    origin, *problems = str(error.value).splitlines()
    assert origin == "my.yaml:"
    assert len(problems) == 1
    assert BAD[line] in problems[0]


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(InvalidScenarioError) as error:
        parsed("title: ''\nmachines: [{count: 0}]\n")

    assert [line.split(": ")[0] for line in str(error.value).splitlines()[1:]] == [
        "title",
        "description",
        "machines[0].count",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "my.yaml is not YAML: "),
        ("", "my.yaml is empty, but it must be a mapping"),
        ("- 1", "my.yaml is list, but it must be a mapping"),
    ],
)
def test_what_is_no_mapping_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidScenarioError, match=words):
        parsed(text, "my.yaml")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("{count: 3}", "usage is 0 on all, but there must be load"),
        ("{count: 2, usage: [1, 2, 3]}", "machines[0].usage: has 3 values for 2 brokers"),
        ("{count: 2, usage: {about: 99}}", "machines[0].usage.about: is 99, but it must be at most 10"),
        ("{count: 2, usage: {first: 0.1}}", "machines[0].usage.last: is missing: add it"),
        ("{count: 2, usage: lots}", "machines[0].usage: is 'lots', but it must be a number"),
    ],
)
def test_a_bad_usage_is_refused_in_its_own_form(fields: str, words: str) -> None:
    with pytest.raises(InvalidScenarioError, match=re.escape(words)):
        parsed(f"title: T\ndescription: D\nmachines: [{fields}]")


def test_a_surge_needs_a_bundle() -> None:
    text = "title: T\ndescription: D\nmachines: [{count: 1, usage: 0.5}, {count: 1}]\n"

    with pytest.raises(InvalidScenarioError, match=r"events\[0\].broker: is 1, but that broker has no bundles"):
        parsed(text + "events: [{event: hot, broker: 1, usage: 1.4, round: 5}]")


def test_an_unknown_name_is_refused_with_the_nearest_ones() -> None:
    with pytest.raises(InvalidScenarioError, match="'two-broker' is unknown: did you mean two-brokers"):
        named("two-broker")
    with pytest.raises(InvalidScenarioError, match="'x' is unknown: `trimtab simulate --list` shows all"):
        named("x")


def test_the_schema_file_is_that_of_the_model() -> None:
    written = json.loads(SCHEMA.read_text())

    model = Scenario.model_json_schema()
    assert {key: value for key, value in written.items() if key not in ("$schema", "title")} == {
        key: value for key, value in model.items() if key != "title"
    }, "run make docs"


def test_every_field_says_what_it_is() -> None:
    schema = Scenario.model_json_schema()

    bare = [
        f"{part}.{name}"
        for part, of in {"Scenario": schema, **schema["$defs"]}.items()
        for name, field in of.get("properties", {}).items()
        if name != "event" and "description" not in field
    ]
    assert bare == []


def test_the_example_of_the_documentation_is_a_scenario() -> None:
    page = (ROOT / "docs" / "reference" / "scenarios.md").read_text()

    (example,) = re.findall(r"```text\n(title: .*?)```", page, re.DOTALL)

    assert parsed(example).event == 20


def test_the_catalogue_has_a_number_of_scenarios_with_names_of_their_own() -> None:
    titles = [scenario.title for scenario in catalogue().values()]

    assert len(titles) == len(set(titles)) == 44
    assert [path.name[:2] for path in sorted(CATALOGUE.glob("*.yaml"))] == [f"{k:02d}" for k in range(1, 45)]


@pytest.mark.parametrize("path", sorted(CATALOGUE.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_scenario_survives_its_own_yaml(path: Path) -> None:
    scenario = parsed(path.read_text())

    again = yaml.safe_dump(scenario.model_dump(mode="json", by_alias=True))

    assert parsed(again) == scenario


def test_the_catalogue_is_in_the_package() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]

    assert any(CATALOGUE.is_relative_to(ROOT / package) for package in wheel["packages"])


@pytest.mark.parametrize("name", ["skewed", "network-bound", "isolation", "heavy-tail"])
def test_brokers_begin_at_the_usage_that_was_asked_for(name: str) -> None:
    scenario = named(name)

    record = run(build(scenario.model_copy(update={"rounds": 1}), RNG(2)), Still(), RNG(2))

    asked = [given for group in scenario.machines if isinstance(given := group.usage, Even)]
    assert record.pressure[0].min() == pytest.approx(min(given.first for given in asked))
    assert record.pressure[0].max() == pytest.approx(max(given.last for given in asked))
