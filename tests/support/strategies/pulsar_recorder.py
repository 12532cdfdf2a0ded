"""Records what Pulsar's classes decide: `make record SEED=N COUNT=N`, or `python -m pulsar_recorder --help`.

Each algorithm has one file, with a scenario in each line. The same seeds give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from map_order import sensitivity
from pulsar_oracle import Oracle
from pulsar_scenarios import GENERATORS, generate

FOLDER = Path(__file__).parents[2] / "conformance" / "pulsar-own"
SHUFFLES = {"modular.AvgShedder": 24, "modular.AvgShedder.selectBroker": 4}
USUAL_SHUFFLES = 8


def recordings(oracle: Oracle, algorithm: str, seeds: range) -> Iterator[dict[str, Any]]:
    """The scenarios of these seeds with Java's answers."""
    times = SHUFFLES.get(algorithm, USUAL_SHUFFLES)
    for seed in seeds:
        scenario = generate(algorithm, seed)
        found = {"expect": oracle.ask(scenario), **sensitivity(scenario, oracle.ask, times)}
        yield {**scenario, **_sorted(found)}


def _sorted(found: dict[str, Any]) -> dict[str, Any]:
    """The recording with sorted keys. The scenario's own maps keep their order, in which Java's maps are filled."""
    ordered: dict[str, Any] = json.loads(json.dumps(found, sort_keys=True))
    return ordered


def write(path: Path, lines: list[str]) -> None:
    """Write a gzip file without name and time, so that equal content gives equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", compresslevel=9, fileobj=raw, mtime=0) as packed:
        packed.write("".join(f"{line}\n" for line in lines).encode())


def main() -> None:
    """Record, and print for each algorithm the number of scenarios and how many depend on the order of maps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1000, help="the first seed (default 1000)")
    parser.add_argument("--count", type=int, default=100, help="scenarios per algorithm (default 100)")
    parser.add_argument("--to", type=Path, default=FOLDER, help="folder to write to")
    parser.add_argument("algorithms", nargs="*", help="which (default: all)", default=list(GENERATORS))
    options = parser.parse_args()
    with Oracle() as oracle:
        for algorithm in options.algorithms:
            recorded = list(recordings(oracle, algorithm, range(options.seed, options.seed + options.count)))
            write(options.to / f"{algorithm}.jsonl.gz", [json.dumps(scenario) for scenario in recorded])
            orders = Counter(scenario["order_sensitive"] for scenario in recorded)
            sys.stdout.write(f"{algorithm}: {len(recorded)} scenarios, order_sensitive {dict(orders)}\n")


if __name__ == "__main__":
    main()
