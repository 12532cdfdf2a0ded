"""The pages for new users say which of Pulsar's defaults mean *never* on a small cluster, and what to set instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from doc_blocks import blocks
from trimtab_operator.resources.strategy_unions import member
from trimtab_strategies.params import pulsar_keys, quantity
from trimtab_strategies.registry import SHEDDERS

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "how-to" / "choose-a-strategy.md"
SECTION = GUIDE.read_text().split("## On a small cluster\n")[1].split("\n## ")[0]
MINIMA = [
    pytest.param(name, parameter, id=f"{name}-{parameter}")
    for name, row in SHEDDERS.items()
    for parameter in (key.name for key in pulsar_keys(row.params).values())
    if parameter in {"min_rate", "min_throughput"}
]


@pytest.mark.parametrize(("shedder", "parameter"), MINIMA)
def test_the_guide_names_the_field_its_default_and_a_lower_amount(shedder: str, parameter: str) -> None:
    info = SHEDDERS[shedder].params.model_fields[parameter]

    (row,) = re.findall(
        rf"^\|[^|]*\| `{member(shedder)}.{info.alias}` \| ([\d,]+(?:Mi)?) \S+ \| `([\dKi]+)`", SECTION, re.MULTILINE
    )
    default, small = (quantity(text.replace(",", "")) for text in row)
    assert default == quantity(str(info.default))
    assert small <= default / 100


def test_the_policy_that_the_guide_shows_has_a_minimum_that_a_small_cluster_reaches() -> None:
    (shown,) = (block for block in blocks(GUIDE) if block.text in SECTION)
    shedder = yaml.safe_load(shown.text)["shedder"]

    params = SHEDDERS[shedder["type"]].params.model_validate(shedder[member(shedder["type"])])
    assert quantity(params.model_dump()["min_throughput"]) < quantity("1Mi")
