"""``python -m trimtab_testbed.programs.setup``: prepares the programs that the demo and most tests start."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from trimtab_testbed.programs import find
from trimtab_testbed.programs.build import MissingToolError


def main(arguments: Sequence[str] | None = None) -> int:
    """Set up what the command line names. Exit code 0, or 1 with one line on stderr that names what is missing."""
    options = _parser().parse_args(arguments)
    try:
        for name, step in steps(options.what, download=options.download):
            began = time.monotonic()
            found = step()
            print(f"{name:<12} {found}  ({time.monotonic() - began:.1f} s)", flush=True)
    except MissingToolError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trimtab_testbed.programs.setup",
        description="Find the programs that the demo and most tests start, and build or fetch those that are missing. "
        "Building the Kubernetes programs takes about 9 minutes on two cores, once.",
    )
    what = ("kube", "controllers", "prometheus", "all")
    parser.add_argument(
        "what",
        nargs="*",
        choices=[*what, []],
        default=["all"],
        help="kube: etcd, kube-apiserver, kubectl; "
        "controllers: kube-controller-manager as well; prometheus; all: everything (default)",
    )
    parser.add_argument(
        "--download",
        action="store_true",
        help="fetch the Kubernetes programs with setup-envtest instead of building them (needs access to GitHub)",
    )
    return parser


def steps(what: Sequence[str], *, download: bool = False) -> list[tuple[str, Callable[[], str]]]:
    """Name and function of each step that prepares `what`; the function returns what was found, as text."""
    everything = "all" in what
    controllers = everything or "controllers" in what
    steps: list[tuple[str, Callable[[], str]]] = []
    if controllers or "kube" in what:
        steps.append(("kubernetes", lambda: _kubernetes(controllers=controllers, download=download)))
    if everything or "prometheus" in what:
        steps.append(("prometheus", lambda: str(find.ensure_prometheus())))
        steps.append(("promtool", lambda: str(find.ensure_prometheus(find.TOOL))))
    return steps


def _kubernetes(*, controllers: bool, download: bool) -> str:
    found = find.ensure_kube(controllers=controllers, download=download)
    manager = f" and {found.controller_manager}" if found.controller_manager else ""
    return f"{found.apiserver.parent} ({found.origin}){manager}"


if __name__ == "__main__":
    sys.exit(main())
