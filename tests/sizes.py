"""Sizes that may only fall. A change that makes one smaller lowers its bound; `make check` fails above a bound."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from trimtab_operator.cli.parser import PLUGINS, verb_help

ROOT = Path(__file__).parents[1]
POLICY = ROOT / "crds" / "trimtab.dev_balancingpolicies.yaml"

BOUNDS = {
    "lines in */src": 70_551,
    "verbs": 27,
    "fields of BalancingPolicy.spec": 270,
    "bytes of README.md": 9_000,
}


def fields(schema: Any) -> Iterator[None]:
    """One item for each field without fields of its own."""
    inner = [
        *schema.get("properties", {}).values(),
        *(schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)),
    ]
    if not inner:
        yield None
    for part in inner:
        yield from fields(part)


def sizes() -> dict[str, int]:
    """What the repository has now, by the names of `BOUNDS`."""
    spec = yaml.safe_load(POLICY.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    added = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][PLUGINS]
    return {
        "lines in */src": sum(path.read_bytes().count(b"\n") for path in ROOT.glob("*/src/**/*.py")),
        "verbs": len({*verb_help({}), *added}),
        "fields of BalancingPolicy.spec": sum(1 for _ in fields(spec)),
        "bytes of README.md": (ROOT / "README.md").stat().st_size,
    }


def main() -> int:
    """Print every size beside its bound. Returns 1 if one is above it."""
    found = sizes()
    above = {name for name, size in found.items() if size > BOUNDS[name]}
    for name, size in found.items():
        sys.stdout.write(f"{name}: {size}, bound {BOUNDS[name]}{' (too many)' if name in above else ''}\n")
    return bool(above)


if __name__ == "__main__":
    sys.exit(main())
