"""The daemon that forks Spark's Python workers, after it has imported the modules of a task.

Workers share the memory of these modules with the daemon, and start without importing them again. PySpark's own daemon
imports nothing before it forks, because a fork of a process with threads is not safe. Of the modules of a task only
PyArrow starts a thread, for one of its allocators. So that thread is switched off.
"""

import gc
import importlib
import os
import sys
from typing import Any

from pyspark.daemon import manager

_NO_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "OMP_NUM_THREADS": "1"}
_MODULES = ("pyspark.worker", "trimtab_pipeline.sources.shard_tasks")


class _WithoutPandas:
    """A finder that keeps pandas out. No task uses it, but PyArrow imports it where it is installed: 30 MB."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"workers of Trimtab have no {name}", name=name)


def import_modules() -> None:
    """Import the modules of a task without starting a thread. Garbage collections then leave them alone."""
    os.environ |= _NO_THREADS
    sys.meta_path.insert(0, _WithoutPandas())
    for module in _MODULES:
        importlib.import_module(module)
    gc.freeze()


if __name__ == "__main__":
    import_modules()
    manager()
