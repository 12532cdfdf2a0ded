"""A saved plan: moves in a file that people read, edit and approve. `trimtab plan --save` writes it.

`trimtab approve -f` puts the plan into an annotation of the policy, in the same request as the approval. So the API
server checks the right to approve for exactly these moves. Without that right, no client can change them before the
operator reads them.
The operator makes the policy's proposal of them (`commands.proposal_of`), and carries it out like any other.
"""

from __future__ import annotations

import zlib
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from trimtab_operator.kube.config_map_store import packed, unpacked
from trimtab_operator.kube.naming import digest, object_name
from trimtab_strategies.model import Reason, counted, some

KIND = "MovePlan"

MOST_MOVES = 10_000

MOST_SENT = 200_000
"""Maximum number of characters of the annotation. The API server accepts 256 KiB of annotations on an object."""

_Name = Annotated[str, Field(min_length=1, max_length=1024)]


class InvalidPlanError(ValueError):
    """A plan that can't be approved. The text says what is wrong with it, and continues "the plan ..."."""


class SavedMove(BaseModel):
    """One move. bundle: as Pulsar spells it, or the name of its object. source, destination: names of Brokers.

    source is empty for a bundle without an owner. reason: why it was planned, for people.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bundle: _Name
    source: Annotated[str, Field(max_length=253)] = ""
    destination: Annotated[str, Field(min_length=1, max_length=253)]
    reason: Annotated[str, Field(max_length=64)] = str(Reason.ADMIN)


class MovePlan(BaseModel):
    """A saved plan. made_at: when its load was measured; None for a plan whose age does not matter."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    kind: Literal["MovePlan"]
    namespace: _Name
    policy: _Name
    made_at: AwareDatetime | None = None
    moves: Annotated[tuple[SavedMove, ...], Field(max_length=MOST_MOVES)]

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        seen = set[str]()
        for k, move in enumerate(self.moves):
            if (name := object_name(move.bundle)) in seen:
                raise ValueError(f"moves[{k}]: {move.bundle} is moved twice: leave one of the moves out")
            if move.source == move.destination:
                raise ValueError(f"moves[{k}]: {move.bundle} would stay on {move.source}: leave it out")
            seen.add(name)
        return self

    @property
    def undone(self) -> Self:
        """The plan that undoes this one, last move first. Its age does not matter, as it does not depend on load.

        Raises `InvalidPlanError` if a bundle had no owner before.
        """
        if unowned := [move.bundle for move in self.moves if not move.source]:
            raise InvalidPlanError(f"can't be undone for {some(unowned)}, which had no owner: leave these moves out")
        moves = tuple(
            SavedMove(bundle=move.bundle, source=move.destination, destination=move.source)
            for move in reversed(self.moves)
        )
        return self.model_copy(update={"moves": moves, "made_at": None})

    @property
    def sent(self) -> str:
        """The annotation that carries it: JSON, compressed, in base64. Raises `InvalidPlanError` if it is too large."""
        text = packed(self.model_dump_json(by_alias=True, exclude_none=True))
        if len(text) > MOST_SENT:
            many = counted(len(self.moves), "move")
            raise InvalidPlanError(f"has {many}, which take {len(text)} bytes, at most {MOST_SENT} fit: split the file")
        return text


def problem_of(error: ValidationError) -> str:
    """The first thing that is wrong with a plan, with its field."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"].removeprefix("Value error, ")


def plan_id(sent: str) -> str:
    """The id of the proposal that a plan becomes: eight hex digits, the same however often the operator reads it."""
    return digest(sent)


def received(sent: str) -> MovePlan:
    """The plan that an annotation carries. Raises `InvalidPlanError`."""
    try:
        return MovePlan.model_validate_json(unpacked(sent), strict=True)
    except ValidationError as error:
        raise InvalidPlanError(f"is no {KIND}: {problem_of(error)}") from error
    except (EOFError, ValueError, zlib.error) as error:
        raise InvalidPlanError(f"is not what `trimtab approve -f` sends ({error!r:.200})") from error
