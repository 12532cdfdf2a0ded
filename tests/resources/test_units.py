"""The API has one unit for each word: fields of a spec are checked in the CRDs, as users get them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from trimtab_operator.resources.crd import KINDS, manifest

Field = Mapping[str, Any]

PULSARS_WORDS = re.compile(r"[a-z]+(_[a-z]+)+|GET|POST")
"""Values that are Pulsar's own, such as `range_equally_divide`, or HTTP's."""


def fields(schema: Field, at: str) -> Iterator[tuple[str, Field]]:
    """Every field below `schema`, with its path."""
    for name, field in schema.get("properties", {}).items():
        yield f"{at}.{name}", field
        yield from fields(field, f"{at}.{name}")
        yield from fields(field.get("items", {}), f"{at}.{name}[]")


def fields_of(part: str) -> dict[str, Field]:
    """The fields of the `part` (spec or status) of all kinds."""
    schemas = {kind.kind: manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}
    return {path: field for kind, whole in schemas.items() for path, field in fields(whole["properties"][part], kind)}


def numbers(found: Mapping[str, Field]) -> dict[str, Field]:
    return {path: field for path, field in found.items() if field.get("type") in {"number", "integer"}}


FIELDS = fields_of("spec")
NUMBERS, STATUS = numbers(FIELDS), numbers(fields_of("status"))


def wrong(found: Mapping[str, Field], well: Any) -> list[str]:
    return [path for path, field in found.items() if not well(path.rpartition(".")[2], field)]


def test_there_are_fields_to_check() -> None:
    assert len(FIELDS) > 200
    assert len(NUMBERS) > 50


def test_every_throughput_is_a_quantity() -> None:
    throughputs = {
        path: field
        for path, field in FIELDS.items()
        if re.search(r"(min|max)(Throughput|Bandwidth)|nicSpeed$|capacity\.", path)
    }

    assert len(throughputs) == 3 + 3 + 1 + 4
    assert wrong(throughputs, lambda _, field: field.get("x-kubernetes-int-or-string")) == []


def test_no_number_is_a_time() -> None:
    times = re.compile(r"^(Seconds|Minutes|Milliseconds|Hours|Time)\b", re.IGNORECASE)

    assert wrong(NUMBERS, lambda name, field: "Seconds" in name or not times.match(field["description"])) == []


def test_no_number_is_a_ratio_from_0_to_1() -> None:
    assert wrong(NUMBERS, lambda _, field: field.get("maximum") != 1 and "Ratio" not in field["description"]) == []


def test_a_name_with_percent_says_percent() -> None:
    named = {path: field for path, field in NUMBERS.items() if path.endswith("Percent")}

    assert len(named) > 10
    assert wrong(named, lambda _, field: re.search(r"\b[Pp]ercent", field["description"])) == []


PARTS_OF_PERCENT = re.compile(
    r"^(Percent|Percentage points?) (of|by|above|below|between|from|points?)\b|^Percentage points:"
)

IN_PERCENT = re.compile(r"\b[Pp]ercent(age)?\b|^Points\b|\bpoints\b(?! squared|-minutes)")


def test_every_percentage_begins_with_the_word() -> None:
    """In a spec and in a status: either the name ends in Percent, or the description begins with it."""
    found = {path: field for path, field in {**NUMBERS, **STATUS}.items() if IN_PERCENT.search(field["description"])}
    found = {
        path: field for path, field in found.items() if not field["description"].startswith(("Factor on ", "Ratio "))
    }

    assert len(found) > 50
    assert wrong(found, lambda name, field: "ercent" in name or PARTS_OF_PERCENT.match(field["description"])) == []


def test_every_hit_count_counts_the_cycle_that_acts() -> None:
    counts = {path: field for path, field in NUMBERS.items() if "hit" in path.rpartition(".")[2].lower()}
    counts = {path: field for path, field in counts.items() if not path.endswith("hotTopicPercent")}

    assert len(counts) == 5
    assert wrong(counts, lambda name, _: name.startswith("hitCount")) == []
    assert wrong(counts, lambda _, field: "including the one that" in field["description"]) == []
    assert wrong(counts, lambda _, field: field["minimum"] == 1) == []


@pytest.mark.parametrize("path", [path for path, field in FIELDS.items() if "enum" in field])
def test_values_are_in_camel_case_but_for_pulsars_own_words(path: str) -> None:
    values = [value for value in FIELDS[path]["enum"] if value]

    assert [v for v in values if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", v) and not PULSARS_WORDS.fullmatch(v)] == []
