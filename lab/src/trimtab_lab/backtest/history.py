"""The part of a history that a backtest replays, as its command names it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_lab.backtest.feed import recorded_cycles
from trimtab_lab.backtest.replay import HistoryReplay, play
from trimtab_operator.cli.common import CommandError, iso
from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.history.reader import NoHistoryError, policies
from trimtab_pipeline.history.recording import Recording

WARM_UP = 3600.0
"""Seconds before the beginning that are replayed and do not count."""

_DAY = 86_400.0


@dataclass(frozen=True)
class ReplayWindow:
    """What is replayed. folder: of the history, as the user named it. begin, end: epoch seconds."""

    folder: str
    recording: Recording
    begin: float
    end: float

    @property
    def warm(self) -> float:
        """Epoch seconds from which the cycles are read: those before `begin` warm up."""
        return max(self.begin - WARM_UP, self.recording.summary.begin)

    def play(self, replays: Sequence[HistoryReplay]) -> None:
        """Play `replays` over the window. Unreadable cycles are named and left out. Raises `CommandError`."""
        try:
            play(recorded_cycles(self.recording.cycles(self.warm, self.end)), replays, self.begin)
        except ForeignFileError as error:
            raise CommandError(
                f"{error}; `trimtab history --dir {self.folder}` says which files are damaged"
            ) from error
        for damage in self.recording.damaged(self.warm, self.end):
            print(f"left out: {damage}", file=sys.stderr)


def opened(arguments: argparse.Namespace) -> ReplayWindow:
    """The window of the command's arguments. Raises `CommandError`."""
    try:
        recording = Recording(arguments.history, arguments.recorded or _only_policy(arguments.history))
        summary = recording.summary
    except NoHistoryError as error:
        raise CommandError(str(error)) from error
    end = min(arguments.end(summary.end), summary.end) if arguments.end else summary.end
    begin = arguments.begin(summary.end) if arguments.begin else end - _DAY * arguments.days
    window = ReplayWindow(arguments.history, recording, max(begin, summary.begin), end)
    if len(recording.times(window.begin, end)) < 2:  # noqa: PLR2004 - one cycle shows no change
        known = f"the history has {iso(summary.begin)} to {iso(summary.end)}"
        raise CommandError(f"from {iso(begin)} to {iso(end)} there are fewer than two cycles; {known}")
    return window


def _only_policy(folder: str) -> str:
    """The policy whose history is there. Raises `CommandError` if there are several; `NoHistoryError`."""
    found = policies(folder)
    if len(found) > 1:
        raise CommandError(f"{folder} has the histories of {', '.join(found)}: choose one with --recorded")
    return found[0]
