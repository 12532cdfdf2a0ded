"""A mixed-integer program, and HiGHS, which solves it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import highspy
import numpy as np

from trimtab_strategies.model.cluster_load import FloatArray

_LOOK = 0.1
"""Seconds between two checks whether the solver has stopped. ^C is noticed within this time."""


class ProgramSolution(NamedTuple):
    """A solution. values: (c,) of the columns; None if none was found in time. bound: no solution can cost less."""

    values: FloatArray | None
    bound: float


@dataclass
class MixedProgram:
    """Minimises the cost of its columns (variables) within the bounds of its rows (constraints).

    Columns are numbered in the order in which they are made. For each column: cost; least, most: its bounds; whole:
    whether it must be an integer.
    """

    cost: list[float] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    _rows: list[tuple[float, float]] = field(default_factory=list)
    _begins: list[int] = field(default_factory=lambda: [0])
    _columns: list[int] = field(default_factory=list)
    _factors: list[float] = field(default_factory=list)

    def column(self, *, cost: float = 0.0, least: float = 0.0, most: float = 1.0, whole: bool = False) -> int:
        """Add a column, and return its number."""
        for values, value in ((self.cost, cost), (self.least, least), (self.most, most)):
            values.append(value)
        self.whole.append(whole)
        return len(self.cost) - 1

    def row(self, terms: Mapping[int, float], *, least: float = -math.inf, most: float = math.inf) -> None:
        """Require that the sum of factor x column over `terms` is at least `least` and at most `most`."""
        self._columns += terms.keys()
        self._factors += terms.values()
        self._begins.append(len(self._columns))
        self._rows.append((least, most))

    def solve(self, seconds: float, start: Mapping[int, float]) -> ProgramSolution:
        """Solve the program within `seconds`. start: values of some columns to begin with.

        On ^C, the solver is stopped before `KeyboardInterrupt` is raised. Raises `RuntimeError` for a program without a
        solution.
        """
        solver: Any = _SilentHighs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("time_limit", float(seconds))
        solver.passModel(self._model())
        columns = np.fromiter(start.keys(), dtype=np.int32, count=len(start))
        solver.setSolution(len(start), columns, np.fromiter(start.values(), dtype=np.float64, count=len(start)))
        _run(solver)
        return _solution(solver, mixed=any(self.whole))

    def _model(self) -> Any:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.cost), len(self._rows)
        model.col_cost_, model.col_lower_, model.col_upper_ = map(np.array, (self.cost, self.least, self.most))
        rows = np.array(self._rows, dtype=np.float64).reshape(-1, 2)
        model.row_lower_, model.row_upper_ = rows[:, 0].copy(), rows[:, 1].copy()
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in self.whole]
        matrix = model.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.num_col_, matrix.num_row_ = model.num_col_, model.num_row_
        matrix.start_, matrix.index_ = np.array(self._begins, dtype=np.int32), np.array(self._columns, dtype=np.int32)
        matrix.value_ = np.array(self._factors, dtype=np.float64)
        return model


class _SilentHighs(highspy.Highs):
    """HiGHS without the greeting that it prints when its callbacks are enabled, before any option can be set."""

    def enableCallbacks(self) -> None:  # noqa: N802 - the name is that of HiGHS
        self.silent()
        super().enableCallbacks()  # type: ignore[no-untyped-call]


def _run(solver: Any) -> None:
    """Run the solver in its own thread, because in this thread ^C would have to wait until the solver returns.

    After ^C, this cancels the solver and waits until its thread has ended: a thread of HiGHS that outlives the
    interpreter aborts the process.
    """
    solver.HandleUserInterrupt = True
    solver.startSolve()
    try:
        while not solver.wait(_LOOK)[0]:
            pass
    except KeyboardInterrupt:
        solver.cancelSolve()
        while not solver.wait(_LOOK)[0]:
            pass
        raise


def _solution(solver: Any, *, mixed: bool) -> ProgramSolution:
    """The solution that was found. mixed: whether any column is whole; else the bound is the least cost itself."""
    status, info = solver.getModelStatus(), solver.getInfo()
    if status not in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kTimeLimit):
        raise RuntimeError(f"HiGHS ended with: {solver.modelStatusToString(status)}")
    found = int(info.primal_solution_status) == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    values = np.array(solver.getSolution().col_value, dtype=np.float64) if found else None
    return ProgramSolution(values, float(info.mip_dual_bound if mixed else info.objective_function_value))
