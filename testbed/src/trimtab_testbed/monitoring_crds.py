"""The kinds ServiceMonitor and PrometheusRule, out of the Prometheus operator's Go module (``testbed/monitoring``).

``python -m trimtab_testbed.setup monitoring`` fetches them (4 MB) into the cache folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from trimtab_testbed import go_build
from trimtab_testbed.go_build import MissingToolError

_MODULE = "monitoring"
_SOURCE = "github.com/prometheus-operator/prometheus-operator"
_FOLDER = "example/prometheus-operator-crd"
_FILES = ("monitoring.coreos.com_prometheusrules.yaml", "monitoring.coreos.com_servicemonitors.yaml")


def find() -> list[Path]:
    """The files, one CustomResourceDefinition each, without fetching them. Raises `MissingToolError`."""
    files = [_cache() / name for name in _FILES]
    if not all(file.is_file() for file in files):
        raise MissingToolError(
            f"{' and '.join(_FILES)} are not in {_cache()}: "
            "run `python -m trimtab_testbed.setup monitoring` to fetch them"
        )
    return files


def ensure() -> list[Path]:
    """The files, fetched when they are nowhere. Raises `MissingToolError`."""
    with go_build.build_lock(_cache()):
        if not all((_cache() / name).is_file() for name in _FILES):
            unpacked = _download() / _FOLDER
            for name in _FILES:
                shutil.copyfile(unpacked / name, _cache() / name)
    return find()


def _cache() -> Path:
    return go_build.cache_dir(_MODULE, go_build.module_dir(_MODULE))


def _download() -> Path:
    module = go_build.module_dir(_MODULE)
    go = go_build.require_go(f"fetch {_SOURCE}", module)
    wanted = f"{_SOURCE}@{go_build.pinned_version(module, _SOURCE)}"
    done = subprocess.run(  # go.sum vouches for what comes
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
