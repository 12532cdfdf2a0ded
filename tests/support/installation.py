"""An installation of Trimtab with the packages that pyproject.toml declares, and with no other."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / room / "src" for room in ("strategies", "pipeline", "operator", "lab", "testbed")]


class Installation:
    """A folder with links to the packages of the plain installation and of `extras`."""

    def __init__(self, folder: Path, *extras: str) -> None:
        self.folder = folder
        names = set(_closure(Requirement(f"trimtab[{','.join(extras)}]")))
        for one in (distribution(name) for name in names):
            for top in _tops(one):
                link = folder / top
                if not link.is_symlink():
                    link.symlink_to(Path(str(one.locate_file(top))))

    def run(self, *words: str, code: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command line `words`, or Python `code`, with these packages alone."""
        main = code or f"import sys; from trimtab_operator.cli import main; sys.exit(main({list(words)!r}))"
        path = ":".join(map(str, [*SOURCES, self.folder]))
        env = {"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "HOME": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, "-S", "-c", main], env=env, cwd=ROOT, capture_output=True, text=True, check=False
        )


def _tops(one: Distribution) -> Iterator[str]:
    """Names in site-packages that belong to a distribution. Our own code comes from its sources."""
    for file in one.files or ():
        top = file.parts[0]
        if top not in {"..", "__pycache__"} and not (one.name == "trimtab" and not top.endswith(".dist-info")):
            yield top


def _closure(wanted: Requirement) -> Iterable[str]:
    """Names of the distributions that pip would install for a requirement."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [wanted]
    while waiting:
        one = waiting.pop()
        key = (one.name, frozenset(one.extras))
        if key in seen:
            continue
        seen.add(key)
        waiting += [
            need
            for need in _needs(one.name)
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *one.extras))
        ]
    return {name for name, _ in seen}


def _needs(name: str) -> list[Requirement]:
    """What a distribution requires. For Trimtab that is what pyproject.toml says now, not what was installed."""
    if name != "trimtab":
        return [Requirement(text) for text in distribution(name).requires or ()]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plain = [Requirement(text) for text in project["dependencies"]]
    return plain + [
        Requirement(f"{text}; extra == '{extra}'")
        for extra, texts in project["optional-dependencies"].items()
        for text in texts
    ]
