"""Every reader of foreign input, by name. The kept inputs of each are in ``tests/fuzz/corpus/<name>.b64``."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import file_readers
import metric_readers
import pulsar_readers
import record_readers
from fuzz_target import Target

TARGETS: Mapping[str, Target] = {
    target.name: target
    for module in (metric_readers, pulsar_readers, record_readers, file_readers)
    for target in module.TARGETS
}
CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"


def kept(target: Target) -> list[bytes]:
    """The kept inputs of a target: a line of base64 each."""
    return [base64.b64decode(line) for line in (CORPUS / f"{target.name}.b64").read_bytes().splitlines()]
