"""What Pulsar's own classes need on the same clusters: measured now, or as recorded in ``data/java-speed.json``."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from large_cluster import Size

RECORDED = Path(__file__).parent / "data" / "java-speed.json"
PROGRAM = Path(__file__).parents[1] / ".trimtab" / "oracle" / "run"


class Call(NamedTuple):
    """What was timed: the class, what it was asked to do, the size and the workload."""

    original: str
    method: str
    size: Size
    workload: str


Figures = Mapping[Call, Mapping[str, Any]]


def live(sizes: Sequence[Size], seconds: float) -> Figures:
    """Measure the classes now, each line within so many seconds as far as three calls allow."""
    if not PROGRAM.is_file():
        raise SystemExit(f"the oracle is not in {PROGRAM.parent}: `make oracle` builds it, or use --java recorded")
    done = subprocess.run(
        [PROGRAM, "--bench", str(seconds), *map(str, sizes)],
        env={**os.environ, "ORACLE_JAVA_OPTS": "-Xmx4g"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
    )
    return _figures([json.loads(line) for line in done.stdout.splitlines()])


def recorded() -> Figures:
    """The committed figures."""
    return _figures(json.loads(RECORDED.read_text())["results"])


def record(figures: Figures, about: Mapping[str, Any]) -> None:
    """Replace the committed figures."""
    results = [
        {"original": call.original, "method": call.method, "size": str(call.size), "workload": call.workload, **found}
        for call, found in figures.items()
    ]
    lines = ",\n".join(f"  {json.dumps(result)}" for result in results)
    RECORDED.write_text(f'{{\n "about": {json.dumps(about)},\n "results": [\n{lines}\n ]\n}}\n')


def _figures(results: Sequence[Mapping[str, Any]]) -> Figures:
    figures = {}
    for result in results:
        size = Size.parse(result.get("size") or f"{result['brokers']}x{result['per_broker']}")
        call = Call(result["original"], result["method"], size, result["workload"])
        milliseconds = {key: float(f"{value:.4g}") for key, value in result.items() if key.endswith("_ms")}
        figures[call] = {**milliseconds, "calls": result["calls"], "decisions": result["decisions"]}
    return figures
