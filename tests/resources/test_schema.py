"""Translation of pydantic models to structural schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from trimtab_operator.resources.common import Resource
from trimtab_operator.resources.crd import KINDS, manifest, rendered_crds
from trimtab_operator.resources.policy import BalancingPolicySpec
from trimtab_operator.resources.schema import InexpressibleError, structural
from trimtab_operator.resources.strategy_unions import PlacementSpec, ShedderSpec, member
from trimtab_strategies.params import seconds
from trimtab_strategies.placement.round_robin import RoundRobinParams
from trimtab_strategies.registry import PLACEMENTS, SELECTIONS, SHEDDERS


def field(annotation: Any, **default: Any) -> dict[str, Any]:
    """Schema of a field of that type."""
    model = type("M", (Resource,), {"__annotations__": {"value": annotation}, "__module__": __name__, **default})
    schema: dict[str, Any] = structural(model)["properties"]["value"]
    return schema


def test_an_optional_field_is_a_plain_one_that_is_not_required() -> None:
    assert field(str | None, value=None) == {"type": "string"}


def test_exclusive_bounds_become_flags() -> None:
    assert field(Annotated[float, Field(gt=0, lt=1)]) == {
        "type": "number",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 1,
        "exclusiveMaximum": True,
    }


def test_an_integer_is_an_int64() -> None:
    assert field(int, value=3) == {"type": "integer", "format": "int64", "default": 3}


def test_a_set_is_a_list_of_kind_set() -> None:
    assert field(set[str])["x-kubernetes-list-type"] == "set"


def test_a_map_keeps_the_schema_of_its_values() -> None:
    assert field(dict[str, int])["additionalProperties"] == {"type": "integer", "format": "int64"}


class Dial(Resource):
    """Can be turned."""

    angle: Annotated[float, Field(gt=0, le=90)] = 45
    """Degrees from the ground."""
    locked: bool = False
    """Whether it stays."""


def test_bounds_and_defaults_are_shown_in_the_description() -> None:
    fields = structural(Dial)["properties"]
    assert fields["angle"]["description"] == "Degrees from the ground. (above 0, at most 90, default 45)"
    assert fields["locked"]["description"] == "Whether it stays. (default false)"


class Inner(Resource):
    """Has a default for everything."""

    depth: int = 2
    """How deep."""


class Outer(Resource):
    """Holds one."""

    inner: Inner = Inner()
    """Shallow by default."""


def test_a_nested_default_is_left_to_the_fields_it_is_made_of() -> None:
    inner = structural(Outer)["properties"]["inner"]
    assert inner["default"] == {}
    assert inner["properties"]["depth"]["default"] == 2
    assert inner["description"] == "Shallow by default."


class Deep(Resource):
    """Has a default of its own."""

    inner: Inner = Inner(depth=9)


class Tree(BaseModel):
    """Contains itself."""

    children: list[Tree]


@pytest.mark.parametrize(
    ("annotation", "complaint"),
    [(int | str, "a choice between 2 types"), (Any, "any type"), (tuple[int, str], "prefixItems")],
)
def test_what_no_schema_can_express_fails_the_build(annotation: Any, complaint: str) -> None:
    with pytest.raises(InexpressibleError, match=complaint):
        field(annotation)


def test_a_recursive_model_fails_the_build() -> None:
    with pytest.raises(InexpressibleError, match="Tree contains itself"):
        structural(Tree)


def test_a_nested_default_that_differs_from_its_fields_fails_the_build() -> None:
    with pytest.raises(InexpressibleError, match="must be made of the defaults of its fields"):
        structural(Deep)


def test_every_kind_is_rendered_the_same_each_time() -> None:
    assert rendered_crds() == rendered_crds()
    assert len(rendered_crds()) == len(KINDS) == 5


def test_short_names_differ() -> None:
    short = [manifest(kind)["spec"]["names"]["shortNames"][0] for kind in KINDS]
    assert sorted(short) == ["bdl", "bkr", "bpol", "bspl", "tns"]


def test_every_registered_strategy_is_a_type_with_its_parameters() -> None:
    spec = structural(BalancingPolicySpec)["properties"]
    for part, table in (("shedder", SHEDDERS), ("placement", PLACEMENTS), ("selection", SELECTIONS)):
        assert spec[part]["properties"]["type"]["enum"] == list(table)
        tunable = [member(name) for name, row in table.items() if row.params.model_fields]
        assert list(spec[part]["properties"]) == ["type", *tunable]


def test_no_object_of_the_crds_is_without_fields() -> None:
    """Client-side apply never settles on such an object, and the server-side apply after it conflicts."""
    empty = [where for kind in KINDS for where in without_fields(manifest(kind)["spec"]["versions"][0]["schema"])]

    assert empty == []


def without_fields(schema: Any, at: str = "") -> Iterator[str]:
    """Where `schema` has an object that declares that it has no fields."""
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if (key, value) == ("properties", {}):
            yield at
        yield from without_fields(value, f"{at}.{key}")


def test_a_strategy_without_parameters_has_no_member() -> None:
    assert PlacementSpec.model_validate({"type": "RoundRobin"}).chosen() == ("RoundRobin", RoundRobinParams())
    with pytest.raises(ValueError, match=r"roundRobin[\s\S]*Extra inputs are not permitted"):
        PlacementSpec.model_validate({"type": "RoundRobin", "roundRobin": {}})


def test_a_member_that_is_left_out_means_the_defaults() -> None:
    name, params = ShedderSpec.model_validate({"type": "ThresholdShedder"}).chosen()
    assert (name, params) == ("ThresholdShedder", SHEDDERS["ThresholdShedder"].params())


def test_a_member_that_is_written_counts() -> None:
    spec = ShedderSpec.model_validate({"type": "ThresholdShedder", "thresholdShedder": {"threshold": 25}})
    assert spec.chosen()[1].model_dump()["threshold"] == 25


def test_a_member_of_another_type_is_refused_naming_both() -> None:
    with pytest.raises(ValueError, match=r"belongs to type Extensible.* but type is LeastResource"):
        PlacementSpec.model_validate(
            {"type": "LeastResourceUsageWithWeight", "extensibleLeastResourceUsageWithWeight": {}}
        )


@pytest.mark.parametrize(("text", "length"), [("90s", 90), ("5m", 300), ("1h30m", 5400)])
def test_durations_are_read_as_kubernetes_writes_them(text: str, length: float) -> None:
    assert seconds(text) == length


@pytest.mark.parametrize("text", ["5 minutes", "", "1.5h", "PT5M"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must look like 90s, 5m or 1h30m"):
        seconds(text)
