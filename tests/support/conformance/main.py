"""Replay recordings of the original strategies, and compare decision by decision: `make conformance FILES="..."`.

Prints one line per algorithm, `matched N of M (undecided K)`, then each mismatch. A scenario is undecided if the
original's answer depends on the order of a hash table, and ours is neither its answer nor a recorded alternative. The
exit code is 1 if anything differs, and 2 for a file that is no recording.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

from conformance.recording import InvalidRecordingError
from conformance.replay import replay_files

_GZIP = b"\x1f\x8b"


def main(files: Sequence[str]) -> int:
    """Replay `files` (JSON lines, plain or gzip), and return the exit code."""
    if not files:
        sys.stderr.write('conformance: name recordings, like FILES="tests/conformance/pulsar/*.gz"\n')
        return 2
    try:
        report = replay_files({name: _lines(name) for name in files})
    except InvalidRecordingError as error:
        sys.stderr.write(f"conformance: {error}\n")
        return 2
    sys.stdout.writelines(f"{line}\n" for line in report.lines())
    return report.exit_code


def _lines(name: str) -> list[str]:
    """Lines of a file, unpacked if its first two bytes are those of gzip. Raises `InvalidRecordingError`."""
    try:
        data = Path(name).read_bytes()
        return (gzip.decompress(data) if data.startswith(_GZIP) else data).decode().splitlines()
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidRecordingError(f"can't read {name}: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidRecordingError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
