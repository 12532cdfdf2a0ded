"""The page of scenarios, with their fields and the scenarios of the lab; their JSON schema, and a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
"""Name of each part in the schema, in the order of the page -> its heading."""


def page() -> str:
    """docs/reference/scenarios.md."""
    parts = _parts()
    rows = [(f"`{name}`", of.title, _cell(of.description)) for name, of in catalogue().items()]
    sections = "\n\n".join(_section(heading, parts[name]) for name, heading in PARTS.items())
    return filled("reference/scenarios.md", CATALOGUE=table("name | title | what happens", rows), PARTS=sections)


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


def _section(heading: str, part: Mapping[str, Any]) -> str:
    rows = list(_rows(part))
    about = " ".join(part.get("description", "").split())
    return f"### {heading}\n\n{about}\n\n{table('field | default | what it is', rows)}"


def _rows(part: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    required = part.get("required", ())
    for name, field in part["properties"].items():
        if name == "event":
            continue
        default = "required" if name in required else _default(field.get("default"))
        yield f"`{name}`", default, _cell(field.get("description", ""))


def _default(value: Any) -> str:
    if value is None:
        return "none"
    return "as below" if isinstance(value, dict | list) and value else f"`{json.dumps(value)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
