"""The recorded scenarios in the repository, as lines of text."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "conformance"
FOLDER = ROOT / "pulsar"

RECORDINGS = sorted(path for path in ROOT.rglob("*") if path.name.endswith((".jsonl", ".jsonl.gz")))
"""All recordings of Pulsar and Hermes, recorded or made by hand. Tests also use every file that is added there."""


def lines(path: Path) -> Iterator[str]:
    """The lines of a recording, plain or gzip."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as text:
        yield from text
