"""``make soak``: hours of the operator's clock, in minutes, for 100 brokers with 60,000 bundles, and with faults."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from soak import MOVED, Soak, soak
from trimtab_operator.resources import crd
from trimtab_pipeline.api import Retention
from trimtab_testbed.programs import find
from trimtab_testbed.servers.kube import ControlPlane

OF_A_BUNDLE = 13
"""Bytes that a cycle adds to the history for each bundle, roughly."""
KEPT = 60
"""Number of cycles for which the history has space."""


def main() -> int:
    """Run a soak, and print its result; returns 1 if something grew or drifted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=6.0, help="of the cluster's time (default: %(default)g)")
    parser.add_argument("--size", default="100x600", help="brokers, and bundles of each (default: %(default)s)")
    options = parser.parse_args()
    brokers, each = map(int, options.size.split("x"))
    retention = Retention(bytes=max(KEPT * OF_A_BUNDLE * brokers * each, 2**20))
    begun, used = time.monotonic(), time.process_time()
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-soak-") as folder,
        ControlPlane(find.find_kube(), Path(folder, "plane")) as plane,
    ):
        plane.rest.apply_crds(crd.manifests().values())
        plane.rest.create_namespace("messaging")
        found = soak(plane, "messaging", Path(folder), (brokers, each), options.hours, retention)
    _show(found, options.hours)
    sys.stdout.write(f"took {time.monotonic() - begun:.0f} s, of the processor {time.process_time() - used:.0f} s\n")
    problems = found.problems(retention)
    sys.stdout.write("\n".join(problems[:20]) + "\n" if problems else "nothing grew, nothing drifted\n")
    return 1 if problems else 0


def _show(found: Soak, hours: float) -> None:
    said = ", ".join(f"{count} times {what}" for what, count in found.faults.most_common())
    sys.stdout.write(f"{found.bundles} bundles, {hours:g} h, {found.moves} moves landed; {said}\n")
    sys.stdout.write("minute  resident  threads  files  tasks  history  bundles that moved\n")
    for sample in found.samples:
        sys.stdout.write(
            f"{sample.minute:6} {sample.resident / 2**20:5.0f} MiB {sample.threads:8} {sample.files:6} "
            f"{sample.tasks:6} {sample.history / 2**20:4.1f} MiB  {sample.tables[MOVED]}\n"
        )
    sys.stdout.write(f"growth after the first third: {found.growth / 2**20:.1f} MiB\n")


if __name__ == "__main__":
    sys.exit(main())
