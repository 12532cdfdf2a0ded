"""Time and quality of one weighted balance: `python benchmarks/hermes.py [--json FILE] [--largest N]`.

The cases are those on which Hermes' own balancer, in Java, was measured (`data/hermes-java-speed.json`,
CPU time of one thread). The weights are lognormal(3, 1) operations/s, and each subscription has one consumer.

    cold       nothing is placed, weights are known
    perturbed  the result of cold, with every weight multiplied by lognormal(0, 0.3)
    steady     the result of perturbed, balanced once more
    frozen     as perturbed, but everything was moved a minute ago

Forms: `java` decides as Hermes does, in the order of Java's hash maps. `sorted` uses the same rules in sorted order.
`corrected` also uses sorted order, and is without Hermes' defects.

Quality has three figures. Two are the largest and the root mean square distance of a consumer's carried weight from its
target, in percent of the target. The third is the number of subscriptions that moved to another consumer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab_strategies.params import Compatibility
from trimtab_strategies.shedding.weighted.nodes import NEVER, Constraints, NodeLoad, Profile, Workload
from trimtab_strategies.shedding.weighted.orders import Iteration
from trimtab_strategies.shedding.weighted.target_weights import Law, TargetRule

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from conformance.hermes_model import Balance, Rules, balance, diff

JAVA = Path(__file__).parent / "data" / "hermes-java-speed.json"
NOW = 1_000_000_000
SIZES = ((10, 1_000), (100, 6_000), (100, 60_000))
CASES = ("cold", "perturbed", "steady", "frozen")
FORMS = {
    "java": (Compatibility.JAVA, Iteration.JAVA),
    "sorted": (Compatibility.JAVA, Iteration.SORTED),
    "corrected": (Compatibility.CORRECTED, Iteration.SORTED),
}


class Case(NamedTuple):
    """A measured case: size, name and law of the targets."""

    consumers: int
    subscriptions: int
    name: str
    law: Law


def rules(form: str, law: Law) -> Rules:
    compatibility, iteration = FORMS[form]
    target = TargetRule(law, compatibility=compatibility, iteration=iteration)
    return Rules(targets=target, compatibility=compatibility, iteration=iteration)


def work(
    case: Case, weights: Mapping[str, float], holders: Mapping[str, tuple[str, ...]], moved: float = NEVER
) -> Workload:
    """The input of one balance; every consumer reports its load and a proportional CPU usage."""
    consumers = [f"10_0_{k // 256}_{k % 256}$consumer" for k in range(case.consumers)]
    ops: dict[str, dict[str, float]] = {name: {} for name in consumers}
    for name, held in holders.items():
        for consumer in held:
            ops[consumer][name] = weights[name]
    mean = sum(weights.values()) / len(consumers)
    strength = [1.0 if k % 2 else 1.4 for k in range(len(consumers))]
    loads = {
        name: NodeLoad(min(1.0, 0.4 * sum(ops[name].values()) / mean * cost), ops[name])
        for name, cost in zip(consumers, strength, strict=True)
    }
    return Workload(
        now=NOW,
        subscriptions=list(weights),
        consumers=consumers,
        constraints=Constraints(case.consumers, 1, 10 * case.subscriptions // case.consumers),
        holders=holders,
        profiles={name: Profile(weight, moved) for name, weight in weights.items()},
        loads=loads,
    )


def prepared(case: Case, form: str) -> Workload:
    """The input of the measured balance, after the balances that it builds on."""
    rng = np.random.default_rng(1)
    names = [f"group{k % 50}.topic{k % 997}$subscription{k}" for k in range(case.subscriptions)]
    cold = dict(zip(names, rng.lognormal(3, 1, len(names)).tolist(), strict=True))
    first = work(case, cold, {})
    if case.name == "cold":
        return first
    placed = balance(first, rules("sorted", Law.AVERAGE)).assignments
    factors = rng.lognormal(0, 0.3, len(names)).tolist()
    shaken = {name: weight * factor for (name, weight), factor in zip(cold.items(), factors, strict=True)}
    if case.name == "frozen":
        return work(case, shaken, placed, NOW - 60_000)
    perturbed = work(case, shaken, placed)
    if case.name == "perturbed":
        return perturbed
    return work(case, shaken, balance(perturbed, rules(form, case.law)).assignments)


def quality(given: Workload, found: Balance) -> dict[str, float]:
    """Distance of the carried weights from the targets, and number of subscriptions that moved."""
    carried = dict.fromkeys(found.order, 0.0)
    for name, held in found.assignments.items():
        for consumer in held:
            carried[consumer] += given.profile(name).weight
    off = np.array([carried[name] / (found.targets.weights[name] or np.nan) - 1 for name in found.order]) * 100
    moved = diff(given.holders, found.assignments)
    return {
        "moves": sum(map(len, moved.additions.values())) if given.holders else 0,
        "worst_percent": float(np.nanmax(np.abs(off))),
        "rms_percent": float(np.sqrt(np.nanmean(off**2))),
    }


def measured(case: Case, form: str) -> dict[str, Any]:
    """Processor seconds of one balance (the median of several, if they are quick) and its quality."""
    given = prepared(case, form)
    spent: list[float] = []
    while not spent or (sum(spent) < 1 and len(spent) < 9):
        started = time.thread_time()
        found = balance(given, rules(form, case.law))
        spent.append(time.thread_time() - started)
    return {"form": form, "cpu_s": sorted(spent)[len(spent) // 2], **quality(given, found)}


def recorded(case: Case) -> float | None:
    """Processor seconds that Hermes' own balancer took."""
    law = "avg" if case.law is Law.AVERAGE else "scoring"
    for row in json.loads(JAVA.read_text())["rows"]:
        same = (row["consumers"], row["subscriptions"], row["case"]) == (case.consumers, case.subscriptions, case.name)
        if same and row["target_weight_strategy"] == law:
            return float(row["median_us"]) / 1e6
    return None


def main() -> None:
    """Print the table, and write it as JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--largest", type=int, default=60_000, help="leave out sizes with more subscriptions than this")
    options = parser.parse_args()
    rows = []
    head = f"{'size':>12} {'case':9} {'targets':8} {'form':9} {'cpu s':>8} {'Java s':>8} {'ratio':>7}"
    print(f"{head} {'moves':>6} {'worst %':>8} {'rms %':>7}")
    for consumers, subscriptions in SIZES:
        for name, law in [(name, Law.AVERAGE) for name in CASES] + [("perturbed", Law.SCORING)]:
            case = Case(consumers, subscriptions, name, law)
            original = recorded(case)
            for form in FORMS if subscriptions <= options.largest else ():
                row = {**case._asdict(), **measured(case, form), "java_s": original}
                rows.append(row)
                ratio = f"{original / row['cpu_s']:7.1f}" if original else f"{'-':>7}"
                print(
                    f"{consumers:4}x{subscriptions:<7,} {name:9} {law:8} {form:9} {row['cpu_s']:8.4f}"
                    f" {original or float('nan'):8.3f} {ratio} {row['moves']:6}"
                    f" {row['worst_percent']:8.3f} {row['rms_percent']:7.3f}",
                    flush=True,
                )
    if options.json:
        about = {"python": sys.version.split()[0], "numpy": np.__version__}
        options.json.write_text(json.dumps({**about, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
