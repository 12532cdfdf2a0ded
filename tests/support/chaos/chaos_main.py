"""`make chaos`: runs rounds and prints a table of their results. The exit code is 1 if an invariant was broken.

CHAOS_SECONDS: time in which rounds may start. SEEDS: the seeds; by default new ones as long as there is time. LOAD:
``drawn``, ``measured``, or both in turn. ROUND: seconds of faults in a round.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from chaos_round import Outcome, play
from chaos_schedule import draw
from trimtab_testbed.programs import find


def rounds(seeds: str, load: str) -> Iterator[tuple[int, bool]]:
    """Seed, and whether load is measured; endless when no `seeds` are given."""
    given = [int(seed) for seed in seeds.split()]
    for number, seed in enumerate(given) if given else ((n, secrets.randbelow(10**9)) for n in count()):
        yield seed, load == "measured" or (load != "drawn" and number % 3 == 2)


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Play the rounds and print results and a summary."""
    until = time.monotonic() + float(os.environ.get("CHAOS_SECONDS") or 600)
    seconds, folder = float(os.environ.get("ROUND") or 40), Path(os.environ.get("FOLDER") or ".trimtab/chaos")
    folder = folder.resolve() / time.strftime("%Y%m%d-%H%M%S")
    done = list[Outcome]()
    _say(Outcome.HEAD)
    for seed, measured in rounds(os.environ.get("SEEDS", ""), os.environ.get("LOAD", "")):
        if time.monotonic() > until:
            break
        where = folder / f"{'measured' if measured else 'drawn'}-{seed}"
        done.append(play(find.find_kube(), find.find_prometheus(), where, draw(seed, seconds, measured=measured)))
        _say(done[-1])
        if os.environ.get("VERBOSE"):
            _say(done[-1].seconds, dict(done[-1].cycles))
        if done[-1].broken:
            _say(done[-1].report(), f"\nlogs are in {where}")
    broken = sum(bool(outcome.broken) for outcome in done)
    _say(
        f"{len(done)} rounds, {broken} with an invariant broken; {sum(len(o.begun) for o in done)} events, "
        f"{sum(o.moves for o in done)} moves, {sum(o.leaders for o in done)} leaders"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
