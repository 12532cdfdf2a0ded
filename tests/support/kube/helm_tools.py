"""Finds or builds Helm, and downloads the CRDs of the Prometheus operator that the chart uses.

Search order for Helm: ``$HELM``, PATH, the cache folder, ``go install`` of the pinned module. ``python
tests/support/kube/helm_tools.py [3|4]`` makes both ready and prints Helm's path. The CRDs come from the Prometheus
operator's Go module (4 MB).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab_testbed.programs import build
from trimtab_testbed.programs.build import MissingToolError
from trimtab_testbed.progress import ProgressLine

HELM = "HELM"

VERSIONS = {4: "v4.3.1", 3: "v3.22.0"}
"""The pinned version of each major version with which the chart is tested."""

DEFAULT = 4

_GO = (1, 26)

_STAMPS = {
    4: ("internal/version.version=v4.3.1",),
    # Without these, Helm 3 assumes Kubernetes 1.20 when it cannot reach a cluster, and refuses the chart.
    3: (
        "internal/version.version=v3.22.0",
        *(
            f"{package}.k8sVersion{part}"
            for package in ("pkg/chartutil", "pkg/lint/rules")
            for part in ("Major=1", "Minor=37")
        ),
    ),
}


@dataclass(frozen=True)
class Helm:
    """A Helm program and its major version."""

    path: Path
    major: int


def find_helm(major: int = DEFAULT) -> Helm:
    """Helm, without building it. ``$HELM`` is used as it is; on PATH and in the cache only version `major` counts.

    Raises `MissingToolError`.
    """
    if given := os.environ.get(HELM):
        path = shutil.which(given)
        if path is None or (found := _major(Path(path))) is None:
            raise MissingToolError(f"{HELM}={given} is not a Helm that runs: set it to one that does, or unset it")
        return Helm(Path(path), found)
    on_path = shutil.which("helm")
    for candidate in filter(None, (on_path, str(_cached(major)))):
        if os.access(candidate, os.X_OK) and _major(Path(candidate)) == major:
            return Helm(Path(candidate), major)
    raise MissingToolError(
        f"helm {major} not found in ${HELM}, on PATH or in {_cached(major)}: "
        f"run `python tests/support/kube/helm_tools.py {major}` to build it"
    )


def ensure_helm(major: int = DEFAULT) -> Helm:
    """Helm. If missing, it is built into the cache folder, which takes 3 to 6 minutes of processor time, once.

    Raises `MissingToolError`.
    """
    try:
        return find_helm(major)
    except MissingToolError:
        if os.environ.get(HELM):
            raise
    folder = _cached(major).parent
    with build.build_lock(folder):
        if not os.access(_cached(major), os.X_OK):  # another process may have built it in the meantime
            _build(major)
    return find_helm(major)


def _linker_flags(major: int) -> str:
    return " ".join(["-s -w", *(f"-X helm.sh/helm/v{major}/{stamp}" for stamp in _STAMPS[major])])


def _cached(major: int) -> Path:
    key = hashlib.sha256(_linker_flags(major).encode()).hexdigest()[:8]
    return build.cache_root() / f"helm-{VERSIONS[major]}-{key}" / "helm"


def _major(helm: Path) -> int | None:
    done = subprocess.run([helm, "version", "--short"], capture_output=True, text=True, check=False)
    found = re.match(r"v(\d+)\.", done.stdout)
    return int(found[1]) if found else None


def _build(major: int) -> None:
    package = f"helm.sh/helm/v{major}/cmd/helm@{VERSIONS[major]}"
    target = _cached(major)
    go = build.go_at_least(_GO, "build helm", target.parent, f", or set {HELM}")
    # $GOBIN must be private to this build: the file appears there before it is complete.
    partial = target.parent / ".partial"
    environment = {**os.environ, "GOBIN": str(partial), "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -trimpath"}
    command = [go, "install", "-ldflags", _linker_flags(major), package]
    with ProgressLine(f"building helm ({package})"):
        done = subprocess.run(command, cwd=target.parent, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingToolError(f"`go install {package}` failed:\n{done.stderr.strip()[-1500:]}")
    (partial / "helm").replace(target)
    partial.rmdir()


_MODULE = "monitoring"
_SOURCE = "github.com/prometheus-operator/prometheus-operator"
_FOLDER = "example/prometheus-operator-crd"
_FILES = tuple(f"monitoring.coreos.com_{kinds}.yaml" for kinds in ("prometheusrules", "servicemonitors", "podmonitors"))


def find_monitoring_crds() -> list[Path]:
    """The CRD files, one CustomResourceDefinition each, without downloading them. Raises `MissingToolError`."""
    files = [_cache() / name for name in _FILES]
    if not all(file.is_file() for file in files):
        raise MissingToolError(f"{', '.join(_FILES)} are not in {_cache()}: run `make helm` to fetch them")
    return files


def ensure_monitoring_crds() -> list[Path]:
    """The CRD files, downloaded if missing. Raises `MissingToolError`."""
    with build.build_lock(_cache()):
        if not all((_cache() / name).is_file() for name in _FILES):
            unpacked = _download() / _FOLDER
            for name in _FILES:
                shutil.copyfile(unpacked / name, _cache() / name)
    return find_monitoring_crds()


def _cache() -> Path:
    return build.cache_dir(_MODULE, build.module_dir(_MODULE))


def _download() -> Path:
    module = build.module_dir(_MODULE)
    go = build.require_go(f"fetch {_SOURCE}", module)
    wanted = f"{_SOURCE}@{build.pinned_version(module, _SOURCE)}"
    done = subprocess.run(  # go.sum verifies the download
        [go, "mod", "download", "-json", wanted],
        cwd=module,
        env={**os.environ, "GOFLAGS": "-mod=mod"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise MissingToolError(f"`go mod download {wanted}` failed:\n{(done.stdout + done.stderr).strip()[-500:]}")
    return Path(json.loads(done.stdout)["Dir"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Make Helm and the CRDs ready, and print Helm's path.

    Exit code 0, or 1 with one line on stderr that names what is missing.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("major", nargs="?", type=int, choices=sorted(VERSIONS), default=DEFAULT)
    try:
        helm = ensure_helm(parser.parse_args(arguments).major)
        ensure_monitoring_crds()
    except MissingToolError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{helm.path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
