"""Every reader of foreign input takes its seeds, and what a fuzzer found, in bounded time and memory."""

from __future__ import annotations

import pytest

from fuzz_target import peak, reset_peak
from fuzz_targets import CORPUS, TARGETS, kept

MOST = 300 * 2**20
"""Bytes by which a process may grow while it reads all that is kept of a target. Imports of the first one count."""

LARGEST_CORPUS = 300_000
"""Bytes of all kept inputs together."""


@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_accepts_its_seeds(name: str) -> None:
    target = TARGETS[name]
    target.warm_up()

    accepted = [target.check(seed) for seed in target.seeds()]

    assert any(accepted)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_refuses_cut_and_flipped_seeds_only_in_the_documented_way(name: str) -> None:
    target = TARGETS[name]

    for seed in target.seeds()[:3]:
        for part in range(1, 16):
            at = part * len(seed) // 16
            target.check(seed[:at])
            target.check(seed[:at] + bytes([(seed[at] if at < len(seed) else 0) ^ 0x10]) + seed[at + 1 :])


@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_reads_what_a_fuzzer_found_in_bounded_memory(name: str) -> None:
    target, inputs = TARGETS[name], kept(TARGETS[name])
    before = reset_peak()

    for data in inputs:
        target.check(data)

    assert inputs
    assert peak() - before < MOST


def test_the_corpus_is_small_and_belongs_to_targets() -> None:
    files = list(CORPUS.iterdir())

    assert {file.stem for file in files} == set(TARGETS)
    assert sum(file.stat().st_size for file in files) < LARGEST_CORPUS
