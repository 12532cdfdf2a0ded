"""`trimtab crds`: print, write or check the CustomResourceDefinitions."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path

from trimtab_operator.cli.failure import FINDING, FINE, CommandError
from trimtab_operator.resources.rendering import rendered

_DESCRIPTION = """\
The custom resource definitions of this version of Trimtab: TopicNamespace, Bundle, Broker, BundleSplit and
BalancingPolicy. Without an option they are printed.

examples:
  trimtab crds | kubectl apply --server-side -f -   install or update them in a cluster
  trimtab crds --write crds              write one file per kind
  trimtab crds --check crds              exit with 1, and show the difference, if the files are out of date
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "crds",
        help="print, write or check the custom resource definitions",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", metavar="DIR", type=Path, help="write one file per kind to DIR")
    what.add_argument("--check", metavar="DIR", type=Path, help="compare with the files in DIR")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code."""
    if arguments.write is not None:
        return _write(arguments.write)
    if arguments.check is not None:
        return _check(arguments.check)
    print("---\n".join(rendered().values()), end="")
    return FINE


def _write(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in rendered().items():
            (folder / name).write_text(text, encoding="utf-8")
            print(folder / name)
    except OSError as error:
        raise CommandError(f"can't write to {folder}: {error.strerror}") from error
    return FINE


def _check(folder: Path) -> int:
    if not folder.is_dir():
        raise CommandError(f"{folder} is no folder; make it with: trimtab crds --write {folder}")
    expected = rendered()
    differences = [line for name, text in expected.items() for line in _difference(folder / name, text)]
    extra = sorted(path for path in folder.glob("*.yaml") if path.name not in expected)
    differences += [f"{path} belongs to no kind: delete it" for path in extra]
    if not differences:
        return FINE
    print(*differences, sep="\n")
    print(f"\n{folder} is out of date; update it with: trimtab crds --write {folder}")
    return FINDING


def _difference(path: Path, text: str) -> list[str]:
    found = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = found.splitlines(), text.splitlines()
    return list(difflib.unified_diff(*lines, str(path), f"{path} (as the models have it)", lineterm=""))
