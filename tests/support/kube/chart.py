"""The chart as users install it: Helm, the documented values, and the rendered manifests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from helm_tools import Helm

CHART = Path(__file__).parents[3] / "charts" / "trimtab"
COMBINATIONS = CHART.parents[1] / "tests" / "chart" / "values"
"""One values file for each way of installing that docs/chart.md describes; its first line says which."""
RELEASE = "trimtab"
IMAGE = "registry.example.com/trimtab"
"""The image for tests that do not depend on it: the chart has no default."""
NAMESPACE = "messaging"

Manifest = dict[str, Any]


class HelmError(RuntimeError):
    """Helm failed; the text has its error output."""


@dataclass(frozen=True)
class Runner:
    """Helm with a kubeconfig, or without access to any cluster. home: folder of its caches."""

    helm: Helm
    home: Path
    kubeconfig: Path | None = None

    def run(self, *words: str | Path, stdin: str | None = None, within: float = 240.0) -> str:
        """Run Helm and return its output. Raises `HelmError`."""
        done = subprocess.run(
            self._command(words),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=within,
            env=self._environment,
            check=False,
        )
        if done.returncode:
            raise HelmError(f"helm {' '.join(map(str, words))}: {done.stderr.strip()}\n{done.stdout.strip()}")
        return done.stdout

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """Start Helm; its output is the process's `stdout`."""
        return subprocess.Popen(
            self._command(words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self._environment
        )

    def _command(self, words: tuple[str | Path, ...]) -> list[str]:
        return [str(self.helm.path), *map(str, words)]

    @property
    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig or self.home / "nowhere"),
            **{f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")},
        }

    def template(self, values: Mapping[str, Any] | None = None, *, release: str = RELEASE) -> str:
        """The manifests for `values`, as text."""
        words = ("template", release, CHART, "--namespace", NAMESPACE, "--values", "-")
        return self.run(*words, stdin=yaml.safe_dump(with_image(values or {})))

    def rendered(self, values: Mapping[str, Any] | None = None, *, release: str = RELEASE) -> list[Manifest]:
        """The manifests for `values`."""
        return documents(self.template(values, release=release))


def with_image(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with an image if they have none."""
    return {**values, "image": {"repository": IMAGE, **values.get("image", {})}}


def documents(text: str) -> list[Manifest]:
    """The objects of a stream of YAML documents."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def of_kind(manifests: Iterable[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def one(manifests: Iterable[Manifest], kind: str, name: str = "") -> Manifest:
    """The only object of its kind, or of its kind and name."""
    found = [m for m in of_kind(manifests, kind) if not name or m["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of kind {kind} {name}"
    return found[0]


def names(manifests: Iterable[Manifest], kind: str) -> list[str]:
    """The names of all objects of a kind."""
    return [manifest["metadata"]["name"] for manifest in of_kind(manifests, kind)]


def operator_container(manifests: Iterable[Manifest]) -> dict[str, Any]:
    return dict(one(manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0])


def combinations() -> dict[str, dict[str, Any]]:
    """Name and values of each documented way of installing."""
    files = sorted(COMBINATIONS.glob("*.yaml"))
    assert files, f"no values in {COMBINATIONS}"
    return {file.stem: with_image(yaml.safe_load(file.read_text()) or {}) for file in files}
