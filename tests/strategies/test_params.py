"""A field's docstring is its description in the schema, and is read only when the schema is rendered."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from trimtab_strategies.params import DescribedModel, descriptions


class Part(DescribedModel):
    """Something that has a part."""

    size: int = 0
    """Its size,
    in meters."""


class Whole(Part):
    """Something of parts."""

    model_config = ConfigDict(alias_generator=to_camel)

    size: int = 1
    first_part: Part | None = None
    """The first."""
    told: Annotated[int, Field(description="Told otherwise.")] = 0
    """Not this."""
    last: int = 0


class Nested(DescribedModel):
    """Something with a class inside."""

    class Inner(DescribedModel):
        """Inside."""

        size: int = 0
        """Of the inner one."""

    inner: Inner
    """The inner one."""


def described(model: type[DescribedModel]) -> dict[str, str]:
    properties = model.model_json_schema()["properties"]
    return {key: field["description"] for key, field in properties.items() if "description" in field}


def test_a_docstring_becomes_the_description_below_the_name_on_the_wire() -> None:
    assert described(Part) == {"size": "Its size,\nin meters."}
    assert described(Whole) == {"firstPart": "The first.", "told": "Told otherwise."}
    assert Whole.model_json_schema()["$defs"]["Part"]["properties"]["size"]["description"] == "Its size,\nin meters."


def test_a_class_inside_another_has_its_own() -> None:
    assert descriptions(Nested) == {"inner": "The inner one."}
    assert descriptions(Nested.Inner) == {"size": "Of the inner one."}


def test_what_is_inherited_keeps_its_description_until_it_is_written_again() -> None:
    class Heir(Whole):
        """Without fields of its own."""

    assert descriptions(Heir) == descriptions(Whole)
    assert "size" not in descriptions(Whole)


def test_no_source_is_read_before_a_description_is_asked_for() -> None:
    code = (
        "import ast, inspect, sys\n"
        "inspect.getsource = inspect.findsource = lambda *_: sys.exit('a source was looked for')\n"
        "import trimtab_strategies.registry, trimtab_operator.resources.policy"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
