"""The page of scenarios, with their fields and the scenarios of the lab; their JSON schema, and a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from page_text import filled, table

from trimtab_lab.simulation import Scenario, catalogue, contender, named
from trimtab_lab.simulation.compare import outcomes
from trimtab_lab.simulation.picture import draw

DRAWN = ("Trim", "AvgShedder/Pulsar", "ThresholdShedder/Pulsar")
"""The strategies in the picture of README.md."""

PARTS: Mapping[str, str] = {
    "Scenario": "A scenario",
    "Machines": "Machines",
    "Tenant": "Tenants",
    "Bursts": "Bursts of a tenant",
    "Alternation": "Alternation of a tenant",
    "DailyCycle": "Day of a tenant",
    "Drift": "Drift of a tenant",
    "Steps": "Steps of a tenant",
    "MetricsOptions": "Metrics",
    "SplittingOptions": "Splitting",
    "Realism": "Realism",
    "Reconnect": "Reconnect",
    "ColdCache": "Cold cache",
    "Batching": "Batching",
    "Knee": "Knee",
    "Failures": "Failures",
    "Leaves": "Event leave",
    "Joins": "Event join",
    "Restarts": "Event restart",
    "ForeignLoad": "Event foreign",
    "Neighbour": "Event neighbour",
    "Crowd": "Event crowd",
    "HotBundle": "Event hot",
    "Failover": "Event failover",
}
"""Name of each part in the schema, in the order of the page -> what the page calls it."""


def page() -> str:
    """docs/reference/scenarios.md."""
    parts = _parts()
    rows = [(f"`{name}`", of.title, _cell(of.description)) for name, of in catalogue().items()]
    fields = table("part | what it is | fields", [_part(heading, parts[name]) for name, heading in PARTS.items()])
    return filled("reference/scenarios.md", CATALOGUE=table("name | title | what happens", rows), PARTS=fields)


def schema() -> str:
    """docs/reference/scenario.schema.json."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Trimtab scenario"}
    return json.dumps(head | _schema(), indent=2) + "\n"


def drawing() -> str:
    """docs/images/simulate.svg: what `trimtab simulate skewed --against ... --picture` draws."""
    scenarios = {"skewed": named("skewed")}
    return draw(scenarios, list(outcomes(scenarios, [contender(name) for name in DRAWN], [1])))


def _schema() -> dict[str, Any]:
    found = Scenario.model_json_schema()
    found.pop("title")
    return found


def _parts() -> dict[str, Any]:
    found = _schema()
    return {"Scenario": found, **found["$defs"]}


def _part(heading: str, part: Mapping[str, Any]) -> tuple[str, str, str]:
    """A part of a scenario and the names of its fields; the schema describes each."""
    required = part.get("required", ())
    names = [f"**`{name}`**" if name in required else f"`{name}`" for name in part["properties"] if name != "event"]
    return heading, _cell(part.get("description", "")), ", ".join(names)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
