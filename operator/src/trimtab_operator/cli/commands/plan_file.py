"""A saved plan: moves in a file that people read, edit and keep. `trimtab plan --save` writes it.

It is YAML, or JSON if the file's name ends in .json. Unknown fields are refused, so no misspelt field is ignored.
"""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from trimtab_operator.cli.commands.edit import object_name
from trimtab_operator.cli.common import CommandError, iso
from trimtab_operator.cli.lint.files import STDIN, UnreadableError, documents
from trimtab_operator.loop.preview import Preview
from trimtab_strategies.model import Reason, counted

KIND = "MovePlan"

_Name = Annotated[str, Field(min_length=1, max_length=1024)]

_HEAD = """\
# A plan of moves. Carry it out with: trimtab apply-plan {file}
# You may remove moves, reorder them, and change destinations. Each move is checked again before it is made.
"""


class SavedMove(BaseModel):
    """One move. bundle: as Pulsar spells it, or the name of its object. source, destination: names of Brokers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bundle: _Name
    source: Annotated[str, Field(max_length=253)] = ""
    destination: Annotated[str, Field(max_length=253)] = ""
    reason: Annotated[str, Field(max_length=64)] = str(Reason.ADMIN)

    @property
    def reversed(self) -> Self:
        """The move that undoes this one."""
        ends = {"source": self.destination, "destination": self.source, "reason": str(Reason.ADMIN)}
        return self.model_copy(update=ends)


class MovePlan(BaseModel):
    """A saved plan. made_at: when its load was measured; None for a rollback, which does not depend on load."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    kind: Literal["MovePlan"]
    namespace: _Name
    policy: _Name
    made_at: AwareDatetime | None = None
    moves: tuple[SavedMove, ...]

    @property
    def reversed(self) -> Self:
        """The plan that undoes this one, last move first."""
        moves = tuple(move.reversed for move in reversed(self.moves))
        return self.model_copy(update={"moves": moves, "made_at": None})

    def write(self, file: str) -> None:
        """Write the plan to `file`. Raises `CommandError`."""
        data = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        if file.endswith(".json"):
            text = json.dumps(data, indent=2) + "\n"
        else:
            text = _HEAD.format(file=file) + yaml.safe_dump(data, sort_keys=False, width=120)
        try:
            Path(file).write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"can't write {file}: {error.strerror}") from error


def saved(arguments: argparse.Namespace, foreseen: Preview) -> list[str]:
    """Save the plan to the file of ``--save``, and return notes about it. Raises `CommandError`."""
    plan = foreseen.plan
    made_at = datetime.fromisoformat(iso(foreseen.snapshot.load.now))
    found = MovePlan(
        kind=KIND,
        namespace=arguments.namespace,
        policy=foreseen.settings.name,
        made_at=made_at,
        moves=_moves(foreseen),
    )
    found.write(arguments.save)
    notes = [f"saved {counted(len(plan.moves), 'move')}; carry them out with: trimtab apply-plan {arguments.save}"]
    if plan.splits:
        notes.append(f"not saved: {counted(len(plan.splits), 'split')}; a split can't be undone (trimtab split)")
    return notes


def _moves(foreseen: Preview) -> tuple[SavedMove, ...]:
    records = foreseen.snapshot.records
    return tuple(
        SavedMove(
            bundle=_spelt(move.bundle, records[move.bundle].name),
            source=move.source,
            destination=move.destination,
            reason=str(move.reason),
        )
        for move in foreseen.plan.moves
    )


def _spelt(full: str, name: str) -> str:
    """The bundle's name in Pulsar if the object's name follows from it, else the object's name."""
    return full if object_name(full) == name else name


def read_plan(file: str) -> MovePlan:
    """The plan in a file (``-``: standard input). Raises `CommandError` that names the field."""
    try:
        found: list[Any] = [document.data for document in documents(file)]
    except UnreadableError as error:
        raise CommandError(f"{file}:{error.line}: it {error}") from error
    name = "standard input" if file == STDIN else file
    if len(found) != 1:
        raise CommandError(f"{name} must hold one {KIND}, and holds {len(found)} documents")
    try:
        return MovePlan.model_validate(found[0])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise CommandError(f"{name} is no {KIND} of `trimtab plan --save`: {where}: {first['msg']}") from error
