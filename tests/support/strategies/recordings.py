"""The recorded scenarios that the repository carries, as text lines."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "conformance"
FOLDER = ROOT / "pulsar"

RECORDINGS = sorted(path for path in ROOT.rglob("*") if path.name.endswith((".jsonl", ".jsonl.gz")))
"""Every recording there is, Pulsar's and Hermes', recorded and made by hand. A file put there is tested."""


def lines(path: Path) -> Iterator[str]:
    """The lines of a recording, plain or gzip."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as text:
        yield from text
