"""Runs two policies on real brokers under the same load, and backtests each one over the histories of both.

Each policy plays the scenario of `calibration.py` on a fresh cluster of three real brokers, and the operator records a
history. Then `trimtab backtest` replays each policy over both histories. Its predictions are compared with what the
policy really did. Runs and predictions are written to docs/data/prediction.json.

    python benchmarks/prediction.py FOLDER   # 35 minutes, on an otherwise idle machine; continues what was interrupted

docs/tools/generate.py makes the table of docs/calibration.md from that file.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibration import HISTORY, Trace, play
from calibration_lab import POLICIES, manifest

DATA = Path(__file__).parents[1] / "docs" / "data" / "prediction.json"

FIGURES = ("moves", "again", "area", "within", "hot", "measured")
"""The figures that are kept of a backtest's row. The class `Figures` of the backtest explains them."""

RECORDED = Path(__file__).parents[1] / "tests" / "lab" / "real-runs"
"""Folder of the archived histories. `tests/lab/test_real_runs.py` repeats the predictions with them."""


def main() -> None:
    """Play the policies whose runs the folder lacks, then replay all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder for the history of each policy, and a file for its trace")
    parser.add_argument("--cores", type=float, default=0.3, help="CPU cores of a broker (default: %(default)s)")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    traces = {name: _trace(name, given.folder, given.cores) for name in POLICIES}
    runs = {name: _told(trace) for name, trace in traces.items()}
    told = {(name, by): _backtest(given.folder, name, by) for name in POLICIES for by in POLICIES}
    found = [
        {
            "policy": name,
            "history": by,
            "predicted": _figures(there, name),
            "measured": _figures(told[name, name], "live"),
            "lacks": there["lacks"],
        }
        for (name, by), there in told.items()
    ]
    lines = ",\n  ".join(json.dumps(one) for one in found)
    for name in POLICIES:
        _run("history", "export", "--dir", str(given.folder / name), str(RECORDED / f"{name}.tar"))
    DATA.write_text(f'{{"runs": {json.dumps(runs)},\n "predictions": [\n  {lines}\n ]}}\n')


def _told(trace: Trace) -> Mapping[str, Any]:
    """What the page says of a run. first: seconds from the start of the policy to its first move."""
    kept = ("finished", "load", "boxed", "machine_cores", "acked", "received", "errors", "bundles")
    moves = [move["at"] for move in trace["moves"]]
    return {**{key: trace[key] for key in kept}, "moves": len(moves), "first": min(moves, default=None)}


def _trace(name: str, folder: Path, cores: float) -> Trace:
    """What a policy did: read from the folder, or else measured in a new run."""
    file = folder / f"{name}.json"
    if not file.exists():
        with tempfile.TemporaryDirectory(prefix="trimtab-prediction-") as work:
            trace = play(cores, Path(work), POLICIES[name], boxed=True)
            shutil.copytree(Path(work) / HISTORY, folder / name)
        file.write_text(json.dumps(trace))
    found: Trace = json.loads(file.read_text())
    return found


def _backtest(folder: Path, name: str, by: str) -> Any:
    """What a replay of the policy `name` over the history of `by` prints, as JSON values."""
    with tempfile.TemporaryDirectory(prefix="trimtab-prediction-") as work:
        file = Path(work) / "policy.json"
        file.write_text(json.dumps(manifest(name, POLICIES[name], "http://pulsar:8080", "http://prometheus:9090")))
        return json.loads(_run("backtest", "--history", str(folder / by), "--policy", str(file), "-o", "json"))


def _figures(told: Any, row: str) -> Mapping[str, Any]:
    """The figures of a row of a backtest. `live` is what really happened."""
    (policy,) = (policy for policy in told["policies"] if policy["name"] == row)
    return {key: policy[key] for key in FIGURES}


def _run(*command: str) -> str:
    """Output of the command line."""
    told = subprocess.run([sys.executable, "-m", "trimtab_operator", *command], stdout=subprocess.PIPE, check=True)
    return told.stdout.decode()


if __name__ == "__main__":
    main()
