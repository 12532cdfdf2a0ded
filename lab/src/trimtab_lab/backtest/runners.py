"""Where the tasks of a backtest run, and what the user sees meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from trimtab_lab.backtest.tasks import InProcess, Report, Runner
from trimtab_operator.cli.common import CommandError
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.factory import task_pool


@contextmanager
def runner(master: str | None) -> Iterator[Runner]:
    """A runner in this process, or in a Spark session on `master`, open for the block. Raises `CommandError`."""
    if master is None:
        yield InProcess()
        return
    try:
        pool = task_pool(master)
    except (SourceUnavailableError, ValueError) as error:
        raise CommandError(str(error)) from error
    try:
        yield pool
    except SourceUnavailableError as error:
        raise CommandError(str(error)) from error
    finally:
        pool.close()


@contextmanager
def progress() -> Iterator[Report]:
    """Show a progress bar with the time left, if standard error is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("replaying"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task("", total=1.0)
        yield lambda done: bar.update(line, completed=done)
