"""``make fuzz``: a coverage-guided fuzzer on one reader of foreign input, or on each in turn.

Its findings are written to ``.trimtab/fuzz/<target>``: inputs that reach new code go into ``corpus``, and inputs that
break a reader next to that folder. Add inputs that are worth keeping to ``tests/fuzz/corpus``, a line of base64 each.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from pathlib import Path

INSTRUMENTED = ["trimtab_strategies", "trimtab_pipeline", "trimtab_operator", "trimtab_lab", "yaml", "tarfile"]
WORK = Path(".trimtab/fuzz")
LONGEST_INPUT = 4096
ROUND = 10.0
"""Minutes after which a new process goes on with the corpus: the memory of the fuzzer itself grows with each input."""


def main() -> int:
    """Fuzz the named targets; returns 1 if a reader broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="", help="a reader; all of them, one after the other, if left out")
    parser.add_argument("--minutes", type=float, default=30.0, help="for each (default: %(default)g)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        _fuzz(options.target, options.minutes)
        return 0
    from fuzz_targets import TARGETS  # noqa: PLC0415  (not before the fuzzer instruments it)

    unknown = {options.target} - {"", *TARGETS}
    if unknown:
        parser.error(f"there is no reader {options.target}; there are: {', '.join(TARGETS)}")
    failed = [name for name in ([options.target] if options.target else TARGETS) if _alone(name, options.minutes)]
    sys.stdout.write(f"broken: {', '.join(failed)}\n" if failed else "no reader broke\n")
    return 1 if failed else 0


def _alone(name: str, minutes: float) -> bool:
    """Fuzz one target in processes of its own, because a crash ends the process; returns whether the reader broke."""
    rounds = max(1, math.ceil(minutes / ROUND))
    command = [sys.executable, __file__, "--inside", "--target", name, "--minutes", str(minutes / rounds)]
    return any(subprocess.run(command, check=False).returncode != 0 for _ in range(rounds))


def _fuzz(name: str, minutes: float) -> None:
    import atheris  # noqa: PLC0415  (only this needs it)

    with atheris.instrument_imports(include=INSTRUMENTED):
        from fuzz_targets import TARGETS, kept  # noqa: PLC0415
    target, work = TARGETS[name], WORK / name
    seeds, corpus = work / "seeds", work / "corpus"
    for folder in (seeds, corpus):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate([*target.seeds(), *kept(target)]):
        (seeds / f"seed-{number}").write_bytes(seed)
    longest = max([LONGEST_INPUT, *(2 * len(seed) for seed in target.seeds())])
    settings = {
        "max_total_time": round(60 * minutes),
        "max_len": longest,
        "timeout": 60,  # seconds of real time, on a busy machine; the target itself limits the processor time
        "rss_limit_mb": 2048,
        "artifact_prefix": f"{work}/",
        "print_final_stats": 1,
    }
    flags = [f"-{key}={value}" for key, value in settings.items()]
    atheris.Setup([sys.argv[0], *flags, str(corpus), str(seeds)], lambda data: target.check(data) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
