"""One-of unions as Kubernetes has them: a `type`, and one optional member per type that holds its parameters.

An example is ``{type: ThresholdShedder, thresholdShedder: {...}}``. A type without parameters has no member, because
client-side apply would report an empty object as changed each time. Pydantic's discriminated unions have no structural
schema. A union is therefore a flat object, and both pydantic and CEL refuse a member of another type. The types are
those of the strategy registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import ConfigDict, Field, create_model, model_validator
from pydantic.alias_generators import to_camel, to_snake

from trimtab_operator.resources.common import Resource, cel
from trimtab_strategies.params import StrategyParams
from trimtab_strategies.registry import PLACEMENTS, SELECTIONS, SHEDDERS, SPLITTERS, Row


class Union(Resource):
    """Base of the classes that `union` creates. members: parameter model by type, also for types without parameters."""

    members: ClassVar[Mapping[str, type[StrategyParams]]] = {}

    @model_validator(mode="after")
    def _only_the_member_of_its_type(self) -> Union:
        chosen = self._type()
        for name in self.members:
            if name != chosen and self._written(name) is not None:
                raise ValueError(_stray(member(name), name, chosen))
        return self

    def _type(self) -> str:
        return str(vars(self)["type"])

    def chosen(self) -> tuple[str, StrategyParams]:
        """The type and its parameters. If the member is absent, the parameters have their defaults."""
        name = self._type()
        params = self._written(name)
        return name, self.members[name]() if params is None else params

    def _written(self, name: str) -> StrategyParams | None:
        """The member of type `name`, None if absent."""
        return cast("StrategyParams | None", vars(self).get(to_snake(name)))


def member(name: str) -> str:
    """The name of the member for a type: ``ThresholdShedder`` -> ``thresholdShedder``."""
    return to_camel(to_snake(name))


def union(
    title: str, doc: str, rows: Mapping[str, tuple[type[StrategyParams], str]], default: str | None = None
) -> type[Union]:
    """Create a union class. rows: type -> its parameter model, and a summary of one sentence.

    default: the type that applies if `type` is absent; if None, `type` is required.
    """
    types, words = _types(title, rows), _choices(rows)
    chosen = Field(description=words) if default is None else Field(types(default), description=words)
    fields: dict[str, Any] = {"type": (types, chosen)}
    tunable = {name: params for name, (params, _) in rows.items() if params.model_fields}
    for name, params in tunable.items():
        text = f"Parameters of {name}. If absent, its defaults apply."
        fields[to_snake(name)] = (params | None, Field(default=None, description=text))
    config = ConfigDict(json_schema_extra=cel(*(_rule(name) for name in tunable)))
    base = cast("type[Union]", type(f"_{title}Base", (Union,), {"model_config": config, "__module__": __name__}))
    base.members = {name: params for name, (params, _) in rows.items()}
    return create_model(title, __base__=base, __doc__=doc, __module__=__name__, **fields)


def _types(title: str, names: Mapping[str, object]) -> type[StrEnum]:
    # called through a name, because the type checker takes StrEnum(...) for a member lookup
    make = cast("Any", StrEnum)
    return cast("type[StrEnum]", make(f"{title}Type", {to_snake(name).upper(): name for name in names}))


def _choices(rows: Mapping[str, tuple[type[StrategyParams], str]]) -> str:
    return " ".join(["Name of the strategy.", *(f"`{name}`: {summary}" for name, (_, summary) in rows.items())])


def _rule(name: str) -> tuple[str, str, str]:
    """The CEL rule that refuses the member of `name` with another type. The rule's message names both types."""
    field = member(name)
    return (
        f"self.type == '{name}' || !has(self.{field})",
        f"{field} belongs to type {name} only",
        f"'{_stray(field, name, '{}')}'".replace("{}", "' + self.type + '"),
    )


def _stray(field: str, name: str, chosen: str) -> str:
    return f"{field} belongs to type {name}, but type is {chosen}: leave it out, or change type"


def _rows(table: Mapping[str, Row[Any]]) -> Mapping[str, tuple[type[StrategyParams], str]]:
    return {name: (row.params, row.summary) for name, row in table.items()}


if TYPE_CHECKING:

    class ShedderSpec(Union):
        """Which bundles leave which brokers."""

    class PlacementSpec(Union):
        """Which broker gets a bundle."""

    class SelectionSpec(Union):
        """Which brokers a bundle may go to."""

    class SplitterSpec(Union):
        """Which bundles are split, and where."""

else:
    ShedderSpec = union("ShedderSpec", "Which bundles leave which brokers.", _rows(SHEDDERS), "Trim")
    PlacementSpec = union("PlacementSpec", "Which broker gets a bundle.", _rows(PLACEMENTS), "Trim")
    SelectionSpec = union("SelectionSpec", "Which brokers a bundle may go to.", _rows(SELECTIONS))
    SplitterSpec = union("SplitterSpec", "Which bundles are split, and where.", _rows(SPLITTERS))
