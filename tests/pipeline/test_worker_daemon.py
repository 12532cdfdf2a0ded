"""The daemon of Spark's Python workers: what it shares with them, and that it may fork."""

from __future__ import annotations

import json
import subprocess
import sys

_IMPORTS = """
import json, os, sys
from trimtab_pipeline.spark.worker_daemon import import_modules

import_modules()
threads = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
print(json.dumps({"threads": threads, "modules": sorted(sys.modules)}))
"""


def test_it_has_imported_what_tasks_import_and_started_no_thread() -> None:
    """A fork of a process with threads may hang: a lock that another thread holds stays locked in the child."""
    ran = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(ran.stdout)
    assert len(found["threads"]) == 1, found["threads"]
    modules = {*found["modules"]}
    assert {"pyarrow.compute", "pyspark.worker", "trimtab_pipeline.prometheus.shard_reader"} <= modules
    assert "pandas" not in modules, "it takes 30 MB"
