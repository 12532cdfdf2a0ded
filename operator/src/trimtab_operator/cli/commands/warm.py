"""`trimtab warm`: keep what a start of Spark spends most of its time on."""

from __future__ import annotations

import argparse
import logging
import time

from trimtab_operator.cli.common import FINE, CommandError, size
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.factory import archive_classes

_DESCRIPTION = """\
Keep Spark's classes in an archive that its JVM maps into memory, instead of loading and verifying each one at every
start: until the engine is warm that saves some 40 % of the work. Making it takes as long as a start and some 10 s, and
155 MB, in $TRIMTAB_CACHE, else $XDG_CACHE_HOME/trimtab, else ~/.cache/trimtab, and may be deleted at any time.

It holds for the Java and the Spark it was made with; run this again after changing either. What fits already is left as
it is. Only a file of the user's own, or of root, that nobody else can write is used. On a Spark Connect server there is
nothing to be made.

example, in a container image:
  ENV TRIMTAB_CACHE=/opt/trimtab
  RUN trimtab warm
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "warm",
        help="make Spark start faster on this machine",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:  # noqa: ARG001  (there are none)
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    logging.basicConfig(level=logging.WARNING, format="trimtab: %(message)s")
    begin = time.monotonic()
    try:
        archive, made = archive_classes()
    except SourceUnavailableError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror or error}") from error
    how = f"made in {time.monotonic() - begin:.0f} s" if made else "is there already"
    print(f"{archive}: {size(archive.stat().st_size)}, {how}; the next start of Spark uses it")
    return FINE
