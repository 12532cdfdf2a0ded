"""`trimtab conformance`: replay recordings of the reference implementations."""

from __future__ import annotations

import argparse
import gzip
import sys
import zlib
from pathlib import Path

from trimtab_lab.conformance import InvalidRecordingError, replay_files
from trimtab_operator.cli.common import CommandError, add_verb

_DESCRIPTION = """\
Replay recordings of the original strategies (JSON lines, plain or gzip) and compare decision by decision.

Prints one line per algorithm, `matched N of M (undecided K)`, then each mismatch. A scenario is undecided if the
original's answer depends on the order of a hash table, and ours is neither its answer nor a recorded alternative.
Exit code 1 if anything differs. `-` reads from standard input.

examples:
  trimtab conformance tests/conformance/pulsar/*.jsonl.gz
  zcat recording.jsonl.gz | trimtab conformance -
"""

_GZIP = b"\x1f\x8b"


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = add_verb(subparsers, "conformance", _DESCRIPTION, run)
    parser.add_argument("files", metavar="FILE", nargs="+", help="a recording; - is standard input")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit code."""
    try:
        report = replay_files({name: _lines(name) for name in arguments.files})
    except InvalidRecordingError as error:
        raise CommandError(str(error)) from error
    print(*report.lines(), sep="\n")
    return report.exit_code


def _lines(name: str) -> list[str]:
    """Lines of a file, unpacked if its first two bytes are those of gzip."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return (gzip.decompress(data) if data.startswith(_GZIP) else data).decode().splitlines()
    except (OSError, EOFError, zlib.error) as error:
        raise CommandError(f"can't read {name}: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from error
