"""The result of a backtest for people: a table, a verdict in words, and Markdown for a pull request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trimtab_lab.backtest.gate import Requirement
from trimtab_lab.backtest.history import ReplayWindow
from trimtab_lab.backtest.notes import mode_of, notes
from trimtab_lab.backtest.players import ACTING, Players
from trimtab_lab.backtest.replay import HistoryReplay
from trimtab_lab.backtest.sweep import front
from trimtab_lab.backtest.tasks import WARM_UP, Seams, seams
from trimtab_lab.backtest.trace import Fidelity, Figures, NamespaceFigures, fidelity
from trimtab_operator.cli.common import iso, length, written
from trimtab_operator.cli.tables import Grid
from trimtab_pipeline.history.recording import RecordedPolicy
from trimtab_strategies.model import counted

COLUMNS = {
    "moves": "moves",
    "again": "again",
    "cut": "cut %",
    "silent": "silent s",
    "area": "area",
    "within": "within",
    "worst": "worst hour",
    "hot": "hot min",
    "measured": "measured %",
}
"""Heading of each figure of the table."""

LITTLE_MEASURED = 0.5
"""Ratio of measured work below which the verdict warns."""

LIKE = 0.9
"""The replay of the policy that really ran should contain at least this ratio of the real moves."""

_COLD = (
    "Less than an hour was recorded before the first cycle of the replay, so averages and memory began empty there: "
    "a later --from may show more of the real moves."
)
_SPARE = ("hot min", "worst hour", "silent s", "again")
_NAMESPACES = 10
_WHOLE = 0.98  # ratio of the time above which a recording counts as complete


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a finished replay."""

    name: str
    figures: Figures
    namespaces: dict[str, NamespaceFigures]

    @classmethod
    def of(cls, replay: HistoryReplay) -> ReplayResult:
        """The result of a replay. Raises `ValueError` for a replay without a cycle."""
        return cls(replay.name, replay.trace.figures(), replay.trace.by_namespace())

    def as_data(self) -> dict[str, Any]:
        """The result as JSON values; null for what is not known."""
        figures: dict[str, Any] = {key: _known(value) for key, value in asdict(self.figures).items()}
        figures["worst_at"] = None if math.isnan(self.figures.worst_at) else iso(self.figures.worst_at)
        spaces = {name: asdict(found) for name, found in self.namespaces.items()}
        return {"name": self.name, **figures, "namespaces": spaces}


@dataclass(frozen=True)
class BacktestReport:
    """A finished backtest.

    results: rows of the table, first the policy that the verdict is about. failed: requirements that are not met.
    check: how well the replay of the policy that really ran shows what happened. unchecked: why there is no check.
    front: names of the variants that no other one beats; empty for a single policy. seams: how much the division into
    windows changes the first result; None for a single window. lacks: sentences on what the history lacks, and what is
    not replayed. specs: the versions of the recorded policy that were in force, oldest first.
    """

    recording: str
    begin: float
    end: float
    results: Sequence[ReplayResult]
    check: Fidelity | None
    unchecked: str
    failed: Sequence[str]
    front: Sequence[str] = ()
    seams: Seams | None = None
    lacks: Sequence[str] = ()
    specs: Sequence[RecordedPolicy] = ()

    @classmethod
    def of(
        cls,
        window: ReplayWindow,
        players: Players,
        required: Sequence[Requirement],
    ) -> BacktestReport:
        """The report on `players`, whose replays of `window` are finished."""
        results = [ReplayResult.of(replay) for replay in players.shown]
        bases = {"policy": results[0].figures, "live": results[-1].figures}
        if players.against:
            bases["against"] = ReplayResult.of(players.against[0]).figures
        failed = [line for one in required if (line := one.failure(bases))]
        missing = notes(window, players, results[-1].figures.cycles)
        unchecked = _unchecked(players)
        check = None if unchecked else _check(players)
        if check is not None and check.reproduced < LIKE and window.begin < window.recording.summary.begin + WARM_UP:
            missing.append(_COLD)
        best = _front(results[: len(players.judged)])
        cuts = seams(players.shown[0].trace, window.parts)
        name = window.recording.policy
        span, specs = (window.begin, window.end), players.specs
        return cls(name, *span, results, check, unchecked, failed, best, cuts, missing, specs)

    @property
    def title(self) -> str:
        """A heading that says what was replayed."""
        figures, span = self.results[0].figures, self.end - self.begin
        gaps = "" if figures.hours * 3600 > _WHOLE * span else f", {length(figures.hours * 3600)} of it recorded"
        when = f"{written(self.begin)} to {written(self.end)} UTC ({length(span)}{gaps})"
        return f"{self.recording}: {when}, {figures.cycles} cycles"

    @property
    def grid(self) -> Grid:
        """The table, with a row for each policy."""
        columns = tuple(COLUMNS.values())
        rows = [
            (
                f"{one.name}{' *' if one.name in self.front else ''}",
                *(_cell(column, getattr(one.figures, column)) for column in COLUMNS),
            )
            for one in self.results
        ]
        return Grid(title="", headings=("policy", *columns), rows=rows, numbers=columns, spare=_SPARE)

    @property
    def lines(self) -> list[str]:
        """The verdict: how the results compare, and how far they can be trusted."""
        first, *others = self.results
        lines = [f"Not beaten by another one: {', '.join(self.front)}."] if self.front else []
        lines += [_against(first, other) for other in others] if not self.front else []
        if first.figures.measured < LITTLE_MEASURED:
            there = "was measured on the broker that would have had it; the rest follows a model"
            lines.append(f"Only {first.figures.measured:.0%} of the work {there}.")
        lines += [_splits_line(one.name, one.figures) for one in self.results if one.figures.splits]
        lines += [f"{self.seams}."] if self.seams else []
        return [*lines, *self.lacks, f"Check: {self.check or self.unchecked}."]

    def as_data(self) -> dict[str, Any]:
        """The backtest as JSON values."""
        check = None if self.check is None else self.check._asdict()
        return {
            "recording": self.recording,
            "from": iso(self.begin),
            "to": iso(self.end),
            "policies": [{**one.as_data(), "front": one.name in self.front} for one in self.results],
            "check": None if check is None else {key: _known(value) for key, value in check.items()},
            "unchecked": self.unchecked or None,
            "seams": None if self.seams is None else {k: _known(v) for k, v in self.seams._asdict().items()},
            "lacks": list(self.lacks),
            "specs": [{"since": iso(one.at), "mode": mode_of(one)} for one in self.specs],
            "failed": list(self.failed),
        }

    def markdown(self) -> str:
        """The backtest as a comment on a pull request."""
        grid, spaces = self.grid, list(self.results[0].namespaces.items())
        lines = ["### Trimtab backtest", "", self.title, "", *(f"{line}  " for line in self.lines), ""]
        lines += _table(grid.headings, grid.rows)
        if spaces:
            rows = [(name, f"{f.moves}", f"{f.clients:.0f}", f"{f.silent:.1f}") for name, f in spaces[:_NAMESPACES]]
            lines += ["", f"Moves of {self.results[0].name} by namespace:", ""]
            lines += _table(("namespace", "moves", "clients cut", "silent s"), rows)
        lines += ["", *(f"**Not met**: {line}  " for line in self.failed)] if self.failed else []
        return "\n".join(lines).rstrip() + "\n"


def _front(judged: Sequence[ReplayResult]) -> list[str]:
    """Names of the results that no other one beats; empty for a single result."""
    if len(judged) < 2:  # noqa: PLR2004 - there is nothing to compare
        return []
    return [one.name for one, best in zip(judged, front([one.figures for one in judged]), strict=True) if best]


def _check(players: Players) -> Fidelity | None:
    if players.recorded is None:
        return None
    followed = None if players.followed is None else players.followed.trace
    return fidelity(players.recorded.trace, players.live.trace, followed)


def _unchecked(players: Players) -> str:
    """Why the replay of the policy that really ran can't be compared with what happened; empty if it can."""
    if players.recorded is None:
        return players.unusable or "the history does not say which policy ran, so its moves are not replayed"
    if players.mode != ACTING:
        return f"the recorded policy was in mode {players.mode} and moved nothing by itself"
    return ""


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _cell(name: str, value: float) -> str:
    """A figure as the table shows it."""
    if math.isnan(value):
        return "-"
    if name == "measured":
        return f"{100 * value:.0f}"
    return f"{value:.0f}" if name in ("moves", "again", "hot", "silent") else f"{value:.1f}"


def _against(one: ReplayResult, other: ReplayResult) -> str:
    mine, theirs = one.figures, other.figures
    cut = (
        ""
        if math.isnan(mine.cut) or math.isnan(theirs.cut)
        else f", {_percent(mine)} of the clients cut instead of {_percent(theirs)}"
    )
    within = (
        "how far the brokers were apart is not known"
        if math.isnan(mine.within) or math.isnan(theirs.within)
        else f"the brokers within {mine.within:.0f} points instead of {theirs.within:.0f}"
    )
    return f"{one.name}: {counted(mine.moves, 'move')} instead of {theirs.moves} ({other.name}), {within}{cut}."


def _splits_line(name: str, found: Figures) -> str:
    """The sentence that says how many splits a policy made, and how much of the result depends on them."""
    made, inside = counted(found.splits, "split"), f"{found.divided:.0%} of the work was in their parts"
    return f"{name}: {made}; {inside}, {found.guessed:.0%} in parts whose shares are not known and taken as even."


def _percent(figures: Figures) -> str:
    return f"{figures.cut:.1f} %" if figures.cut < 10 else f"{figures.cut:.0f} %"  # noqa: PLR2004


def _table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    return [f"| {' | '.join(map(str, row))} |" for row in (headings, ["---"] * len(headings), *rows)]
