"""The file of a saved plan (`proposals.saved_plan`): `trimtab plan --save` writes it, `trimtab approve -f` reads it.

It is YAML, or JSON if the file's name ends in .json. Unknown fields are refused, so no misspelt field is ignored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from trimtab_operator.cli.common import CommandError
from trimtab_operator.cli.lint.files import STDIN, UnreadableError, documents
from trimtab_operator.proposals.saved_plan import KIND, MovePlan, problem_of

_HEAD = """\
# A plan of moves. Carry it out with: trimtab approve -f {file}
# You may remove moves, reorder them, and change destinations. Each move is checked again before it is made.
# Undo it with: trimtab approve -f {file} --undo
"""


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
        raise CommandError(f"{name} is no {KIND} of `trimtab plan --save`: {problem_of(error)}") from error


def write_plan(plan: MovePlan, file: str) -> None:
    """Write `plan` to `file`. Raises `CommandError`."""
    data = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    if file.endswith(".json"):
        text = json.dumps(data, indent=2) + "\n"
    else:
        text = _HEAD.format(file=file) + yaml.safe_dump(data, sort_keys=False, width=120)
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"can't write {file}: {error.strerror}") from error
