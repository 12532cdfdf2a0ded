"""Check the versions of a release, or write its chart: `release_chart.py --tag v0.1.0 --check`, or `--into DIR`.

The chart of this repository names no image, home or icon, because nothing is published. The released chart names the
pushed image by its digest, and has the metadata that Artifact Hub shows.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = Path("charts", "trimtab")

UNRELEASED = "not yet released"
"""What stands for the date in the heading of a section that may still change."""

_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")


def versions(root: Path) -> dict[str, str]:
    """Every version that the repository states, by the file that states it."""
    chart = yaml.safe_load((root / CHART / "Chart.yaml").read_text())
    found = {f"Chart.yaml {key}": str(chart[key]) for key in ("version", "appVersion")}
    for file, pattern in (
        ("pyproject.toml", r'^version = "(.+)"$'),
        ("Dockerfile", r'image\.version="(.+)"$'),
        ("CHANGELOG.md", r"^## ([0-9][^\s,]*), "),
    ):
        match = re.search(pattern, (root / file).read_text(), re.MULTILINE)
        found[file] = match[1] if match else "none"
    return found


def complaints(root: Path, tag: str) -> Iterator[str]:
    """The reasons why `tag` can't be released, one line each."""
    wanted = tag.removeprefix("v")
    if not re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", tag):
        yield f"tag {tag!r} is not of the form v1.2.3 or v1.2.3-rc.1"
    for where, version in versions(root).items():
        if version != wanted:
            yield f"{where} has version {version}, the tag {wanted}: change one of them"
    if UNRELEASED in (root / "CHANGELOG.md").read_text():
        yield f"CHANGELOG.md still says {UNRELEASED!r}: write the date of the release there"


def changes(text: str) -> list[dict[str, str]]:
    """The newest section of CHANGELOG.md, as Artifact Hub's `changes`: the first sentence of each change."""
    section = text.partition("\n## ")[2].partition("\n## ")[0]
    kind, found = "", list[dict[str, str]]()
    for line in section.splitlines():
        if line.startswith("### "):
            kind = line.removeprefix("### ").lower()
        elif line.startswith("- "):
            said = _SENTENCE.split(_LINK.sub(r"\1", line.removeprefix("- ")))[0]
            found.append({"kind": kind, "description": said})
    return found


def write(root: Path, into: Path, *, image: str, digest: str, home: str, icon: str) -> Path:
    """Write the released chart below `into`, and return its folder."""
    target = into / CHART.name
    shutil.copytree(root / CHART, target)
    chart: dict[str, Any] = yaml.safe_load((target / "Chart.yaml").read_text())
    chart |= {"home": home, "icon": icon, "sources": [home]}
    chart["annotations"] |= {
        "artifacthub.io/images": _text([{"name": "trimtab", "image": f"{image}@{digest}"}]),
        "artifacthub.io/changes": _text(changes((root / "CHANGELOG.md").read_text())),
        "artifacthub.io/prerelease": str("-" in str(chart["version"])).lower(),
    }
    (target / "Chart.yaml").write_text(_text(chart))
    values = (target / "values.yaml").read_text()
    for key, value in (("repository", image), ("digest", digest)):
        values, count = re.subn(rf'^  {key}: ""$', f"  {key}: {value}", values, count=1, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"values.yaml has no empty image.{key}")
    (target / "values.yaml").write_text(values)
    return target


def _text(data: Any) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=10_000)


def main(arguments: list[str] | None = None) -> int:
    """Check the versions, or write the chart, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", required=True, help="the release's tag, such as v0.1.0")
    parser.add_argument("--check", action="store_true", help="only compare the tag with all versions in the repository")
    parser.add_argument("--image", default="", help="the pushed image, without tag")
    parser.add_argument("--digest", default="", help="its digest, sha256:...")
    parser.add_argument("--home", default="", help="URL of the repository")
    parser.add_argument("--icon", default="", help="URL of the icon")
    parser.add_argument("--into", type=Path, default=Path("released"), help="folder to write to (%(default)s)")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    given = parser.parse_args(arguments)
    if wrong := list(complaints(given.root, given.tag)):
        sys.stderr.write("".join(f"release: {line}\n" for line in wrong))
        return 1
    if given.check:
        return 0
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", given.digest) or not (given.image and given.home and given.icon):
        parser.error("--image, --digest sha256:..., --home and --icon are needed to write the chart")
    published = {"image": given.image, "digest": given.digest, "home": given.home, "icon": given.icon}
    sys.stdout.write(f"{write(given.root, given.into, **published)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
