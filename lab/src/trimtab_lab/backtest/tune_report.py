"""The result of `trimtab tune` for people: a table, sentences, and a diff of the policy's file."""

from __future__ import annotations

import difflib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab_lab.backtest.manifest_edit import UneditableError, edited
from trimtab_lab.backtest.report import COLUMNS, ReplayResult, cell, splits_line
from trimtab_lab.backtest.search import AS_IS, Tuned
from trimtab_operator.cli.common import CommandError, iso, written
from trimtab_operator.cli.tables import Grid

_NO_NEWLINE = "\n\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class TuneReport:
    """A finished search. recording: the recorded policy. name: the tuned policy. diff: empty without a winner.

    notes: sentences on what the history lacks, and what is not replayed.
    """

    recording: str
    name: str
    tuned: Tuned
    diff: str
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, recording: str, name: str, file: str, tuned: Tuned, notes: Sequence[str]) -> TuneReport:
        """The report on the policy `name` in `file`. Raises `CommandError` for a file that can't be changed."""
        return cls(recording, name, tuned, _diff(file, name, tuned), notes)

    @property
    def title(self) -> str:
        """A heading that says whose load was replayed, and which part of it the policies were judged on."""
        part = f"{written(self.tuned.begin)} to {written(self.tuned.end)} UTC"
        return f"{self.recording}: judged on {part}, which the search has not seen"

    @property
    def grid(self) -> Grid:
        """The policies on the load that the search has not seen."""
        tuned = self.tuned
        rows = [
            (
                self._shown(name),
                f"{tuned.costs[name]:.1f}",
                *(cell(column, getattr(one, column)) for column in COLUMNS),
            )
            for name, one in tuned.figures.items()
        ]
        columns = ("cost", *COLUMNS.values())
        return Grid("", ("policy", *columns), rows, columns, ("silent s", "again", "worst hour", "within"))

    @property
    def lines(self) -> list[str]:
        """The evidence as sentences."""
        return list(self._sentences())

    def _sentences(self) -> Iterator[str]:
        tuned = self.tuned
        first, last = tuned.rungs[0], tuned.rungs[-1]
        tried = len(first.costs) - 1
        yield f"The search tried {tried} variants of {self.name} on {written(last.begin)} to {written(last.end)}."
        best = last.costs[tuned.best.name]
        yield f"There the best costs {best:.1f}, and the policy as it is {last.costs[AS_IS]:.1f}."
        yield f"The best: {tuned.best.name}."
        change = "less" if tuned.gained >= 0 else "more"
        keep = "" if tuned.winner else ": keep the policy as it is"
        yield f"On load that it has not seen it costs {abs(tuned.gained):.0%} {change}{keep}."
        if tuned.figures[AS_IS].cut != tuned.figures[AS_IS].cut:
            yield "The recording does not say how many clients there are, so a move costs nothing."
        yield from (splits_line(self._shown(name), one) for name, one in tuned.figures.items() if one.splits)
        yield from self.notes

    def _shown(self, name: str) -> str:
        return "tuned" if name == self.tuned.best.name else name

    def patch(self) -> str:
        """The evidence as comments, and the diff of the file; for `git apply`."""
        return "".join(f"# {line}\n" for line in (self.title, *self.lines)) + self.diff

    def as_data(self) -> dict[str, Any]:
        """The report as JSON values."""
        tuned = self.tuned
        judged = {
            name: {**ReplayResult(name, figures, {}).as_data(), "cost": tuned.costs[name]}
            for name, figures in tuned.figures.items()
        }
        best = {".".join(path): value for path, value in tuned.best.changes.items()}
        return {
            "better": tuned.winner is not None,
            "best": {"name": tuned.best.name, "fields": best},
            "gained": tuned.gained,
            "from": iso(tuned.begin),
            "to": iso(tuned.end),
            "judged": judged,
            "rungs": [{"from": iso(one.begin), "to": iso(one.end), "costs": dict(one.costs)} for one in tuned.rungs],
            "lacks": list(self.notes),
            "diff": self.diff,
        }


def _diff(file: str, name: str, tuned: Tuned) -> str:
    """The diff of the file; empty without a winner. Raises `CommandError` for a file that can't be changed."""
    if tuned.winner is None:
        return ""
    before = Path(file).read_bytes().decode()  # keeps its line ends
    try:
        after = edited(before, name, tuned.winner.changes)
    except UneditableError as error:
        raise CommandError(f"{file} can't be changed ({error}); the winner is {tuned.winner.name}") from error
    path = _path_in_repository(Path(file))
    lines = difflib.unified_diff(_lines_of(before), _lines_of(after), f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}{_NO_NEWLINE}" for line in lines)


def _path_in_repository(file: Path) -> str:
    """The path that `git apply` looks for: relative to the repository's top.

    Outside of a repository, it is relative to the working folder, or to the file's own folder if the file is not in the
    working folder.
    """
    whole = file.resolve()
    tops = (folder for folder in whole.parents if (folder / ".git").exists())
    top = next(tops, Path.cwd() if whole.is_relative_to(Path.cwd()) else whole.parent)
    return whole.relative_to(top).as_posix()


def _lines_of(text: str) -> list[str]:
    """The lines of a text, as Git counts them."""
    return list(io.StringIO(text, newline="\n"))
