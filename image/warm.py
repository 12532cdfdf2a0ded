"""Run a dry cycle on Spark without Prometheus and Kubernetes, to show that Spark works here.

python warm.py [FOLDER [ARCHIVE]]      FOLDER: for the history of the dry cycle; /tmp/trimtab-warm if not given
                                       ARCHIVE: file for the classes that the JVM has loaded; needs a JVM that
                                       was started with -XX:+RecordDynamicDumpInfo, and jcmd next to java
"""

import subprocess
import sys
from pathlib import Path

from pyspark import SparkContext

from trimtab_pipeline.factory import spark_sources
from trimtab_pipeline.spark.java import require_java

folder, archive = [*sys.argv[1:3], None, None][:2]


def write_archive(file: str) -> None:
    """Make Spark's JVM write its classes to a file while it runs, because its shutdown may be cut short."""
    jvm = SparkContext._gateway.proc.pid  # noqa: SLF001  (no public way to the process)
    jcmd = Path(require_java().path).resolve().with_name("jcmd")
    subprocess.run([jcmd, str(jvm), "VM.cds", "dynamic_dump", file], check=True)  # noqa: S603


sources = spark_sources(Path(folder or "/tmp/trimtab-warm"), deadline=900)  # noqa: S108  (used by the image's build)
try:
    sources.warm_up().result()
    if archive:
        write_archive(archive)
finally:
    sources.close()
