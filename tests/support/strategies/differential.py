"""Compares our decisions with those of Pulsar's own classes on new random scenarios."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from conformance.replay import replay
from conformance.report import Tally
from map_order import Ask, sensitivity
from pulsar_scenarios import generate

SHUFFLES = 24


@dataclass
class Comparison:
    """What was found for one algorithm.

    asked:       scenarios compared.
    excused:     number of scenarios where our answer differs from Java's, and Java's answer also changes when only
                 names and orders change.
    differences: the other scenarios where our answer differs, as text, with the seed that repeats it.
    """

    algorithm: str
    asked: int = 0
    excused: int = 0
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = f"{self.algorithm}: {self.asked} asked, {self.excused} excused, {len(self.differences)} different"
        return "\n  ".join([counts, *self.differences[:5]])


def compare(algorithm: str, seeds: Iterable[int], ask: Ask) -> Comparison:
    """Compare the scenarios of these seeds. `ask` returns Java's answer to a scenario."""
    found = Comparison(algorithm)
    for seed in seeds:
        found.asked += 1
        try:
            difference = _difference(algorithm, seed, ask, found)
        except Exception as error:
            error.add_note(f"while comparing {algorithm} with TRIMTAB_SEED={seed}")
            raise
        if difference:
            found.differences.append(f"TRIMTAB_SEED={seed}: {difference}")
    return found


def _difference(algorithm: str, seed: int, ask: Ask, found: Comparison) -> str:
    scenario = generate(algorithm, seed)
    recorded = {**scenario, "expect": ask(scenario)}
    if _replayed(recorded).ok:
        return ""
    tally = _replayed({**recorded, **sensitivity(scenario, ask, SHUFFLES)})
    found.excused += tally.ok
    return "".join(str(mismatch) for mismatch in tally.mismatches)


def _replayed(recorded: dict[str, object]) -> Tally:
    tally = replay([json.dumps(recorded)]).tallies[str(recorded["algorithm"])]
    assert tally.implemented, f"{tally.algorithm} is not in the table of algorithms that can be replayed"
    return tally
