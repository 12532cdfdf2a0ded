"""The part of a history that a backtest replays, as the command's arguments select it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_lab.backtest.replay import HistoryReplay
from trimtab_lab.backtest.tasks import Report, Runner, TimeWindow, play_all, tasks, windows
from trimtab_operator.cli.common import CommandError, iso
from trimtab_pipeline.history.reader import NoHistoryError, policies
from trimtab_pipeline.history.recording import Recording
from trimtab_strategies.model import some

_DAY = 86_400.0
_NAMED = 3  # maximum number of damaged files that a message names


@dataclass(frozen=True)
class ReplayWindow:
    """The time that is replayed. folder: the history's folder. begin, end: epoch seconds.

    length: seconds of each window, if several are replayed in parallel; None: one window.
    """

    folder: str
    recording: Recording
    begin: float
    end: float
    length: float | None = None

    @property
    def parts(self) -> list[TimeWindow]:
        """The windows that are replayed in parallel."""
        return windows(self.begin, self.end, self.length)

    def play(self, replays: Sequence[HistoryReplay], runner: Runner, report: Report) -> None:
        """Play `replays`. Files whose cycle times can't be read are left out, and named on standard error.

        Raises `CommandError` if a file's cycle times can be read but not its content, or if no cycle can be replayed.
        """
        parts = self.parts
        work = tasks(self.folder, self.recording.policy, parts, replays, runner.parallelism())
        if error := play_all(work, replays, runner, report):
            raise CommandError(f"{error}; `trimtab history --dir {self.folder}` says which files are damaged")
        self.tell_damage()

    def tell_damage(self) -> None:
        """Print to standard error which cycles could not be read and were left out."""
        begin = max(self.parts[0].read, self.recording.summary.begin)
        if damaged := self.recording.damaged(begin, self.end):
            print(f"left out: {some(damaged, _NAMED, '; ')}", file=sys.stderr)


def opened(arguments: argparse.Namespace, folder: str) -> ReplayWindow:
    """The window of the history in `folder` that the command's arguments select. Raises `CommandError`."""
    try:
        recording = Recording(folder, arguments.recorded or _only_policy(folder))
        summary = recording.summary
    except NoHistoryError as error:
        raise CommandError(str(error)) from error
    end = min(arguments.end(summary.end), summary.end) if arguments.end else summary.end
    begin = arguments.begin(summary.end) if arguments.begin else end - _DAY * arguments.days
    length = None if arguments.window is None else _DAY * arguments.window
    window = ReplayWindow(folder, recording, max(begin, summary.begin), end, length)
    if len(recording.times(window.begin, end)) < 2:  # noqa: PLR2004 - one cycle shows no change
        known = f"the history has {iso(summary.begin)} to {iso(summary.end)}"
        raise CommandError(f"from {iso(begin)} to {iso(end)} there are fewer than two cycles; {known}")
    return window


def _only_policy(folder: str) -> str:
    """The only policy with a history in `folder`. Raises `CommandError` for several, `NoHistoryError` for none."""
    found = policies(folder)
    if len(found) > 1:
        raise CommandError(f"the history has those of {', '.join(found)}: choose one with --recorded")
    return found[0]
