"""Run a dry cycle on Spark, which needs neither Prometheus nor Kubernetes: a proof that Spark works here.

python warm.py [FOLDER]      FOLDER: for the history of the dry cycle; /tmp/trimtab-warm if not given
"""

import sys
from pathlib import Path

from trimtab_pipeline.factory import spark_sources

sources = spark_sources(Path(*sys.argv[1:] or ["/tmp/trimtab-warm"]), deadline=900)  # noqa: S108  (a build's own)
try:
    sources.warm_up().result()
finally:
    sources.close()
