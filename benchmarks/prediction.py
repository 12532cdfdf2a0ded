"""Two policies on real brokers under the same load, and what the backtest of each history says of the other policy.

Each policy plays the scenario of `calibration.py` on a fresh cluster of three real brokers, and the operator records a
history. Then `trimtab backtest` replays each policy over the history of the other one. What it predicts is compared
with what the policy really did. Runs and predictions go to docs/data/prediction.json, the histories to the folder. The
run of the default policy is the one of `calibration.py`, and is saved as such, too.

    python benchmarks/prediction.py FOLDER   # 35 minutes, on an otherwise idle machine; continues what was interrupted

docs/tools/generate.py makes the table of docs/calibration.md of it.
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

from calibration import HISTORY, Trace, play, save

DATA = Path(__file__).parents[1] / "docs" / "data" / "prediction.json"

FIGURES = ("moves", "again", "area", "within", "hot", "measured")
"""What is kept of a backtest's row; `Figures` of the backtest says what each one is."""

POLICIES: Mapping[str, Mapping[str, Any]] = {
    "trim": {},
    "avg": {
        "shedder": {"type": "AvgShedder", "avgShedder": {"minRate": 50, "minThroughput": "10Ki", "hitCountLow": 3}},
        "placement": {"type": "AvgShedder"},
    },
}
"""The strategies of the two policies. AvgShedder's own minimum, 1,000 messages/s, is above the load of this cluster."""


def main() -> None:
    """Play what the folder lacks, then replay."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder for the history of each policy, and a file for its trace")
    parser.add_argument("--cores", type=float, default=0.3, help="CPU cores of a broker (default: %(default)s)")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    traces = {name: _trace(name, given.folder, given.cores) for name in POLICIES}
    save(traces["trim"])
    runs = {
        name: {**{key: trace[key] for key in _KEPT}, "moves": len(trace["moves"])} for name, trace in traces.items()
    }
    found = [_predicted(given.folder, name, by) for name in POLICIES for by in POLICIES]
    lines = ",\n  ".join(json.dumps(one) for one in found)
    DATA.write_text(f'{{"runs": {json.dumps(runs)},\n "predictions": [\n  {lines}\n ]}}\n')


_KEPT = ("finished", "load", "boxed", "machine_cores", "acked", "errors", "bundles")


def _trace(name: str, folder: Path, cores: float) -> Trace:
    """What a policy did: in the folder, else in a run of now."""
    file = folder / f"{name}.json"
    if not file.exists():
        with tempfile.TemporaryDirectory(prefix="trimtab-prediction-") as work:
            trace = play(cores, Path(work), POLICIES[name], boxed=True)
            shutil.copytree(Path(work) / HISTORY, folder / name)
        file.write_text(json.dumps(trace))
    found: Trace = json.loads(file.read_text())
    return found


def _predicted(folder: Path, name: str, by: str) -> Mapping[str, Any]:
    """What the history of the policy `by` says of the policy `name`, beside what `name` really did."""
    with tempfile.TemporaryDirectory(prefix="trimtab-prediction-") as work:
        manifest = Path(work) / f"{name}.json"
        manifest.write_text(json.dumps(_manifest(name)))
        there, real = (_backtest(folder / one, manifest) for one in (by, name))
    predicted, measured = (
        {key: policy[key] for key in FIGURES}
        for rows, row in ((there, name), (real, "live"))
        for policy in rows["policies"]
        if policy["name"] == row
    )
    return {"policy": name, "history": by, "predicted": predicted, "measured": measured, "lacks": there["lacks"]}


def _backtest(history: Path, manifest: Path) -> Any:
    command = [sys.executable, "-m", "trimtab_operator", "backtest", "--history", str(history)]
    told = subprocess.run([*command, "--policy", str(manifest), "-o", "json"], stdout=subprocess.PIPE, check=True)
    return json.loads(told.stdout)


def _manifest(name: str) -> Mapping[str, Any]:
    spec = {"mode": "Auto", "source": {"prometheus": {"url": "http://prometheus:9090"}}, **POLICIES[name]}
    kind = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "BalancingPolicy"}
    return {**kind, "metadata": {"name": name}, "spec": {**spec, "pulsar": {"adminUrl": "http://pulsar:8080"}}}


if __name__ == "__main__":
    main()
