"""A Spark session for the SQL rules: the one that this process has, or one of the folder's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from trimtab_pipeline.spark.session import Engine
from trimtab_pipeline.spark.settings import SparkSettings


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """A session on one core."""
    if SparkContext._active_spark_context is not None:
        yield SparkSession(SparkContext._active_spark_context)
        return
    engine = Engine(SparkSettings("local[1]"))
    yield engine.run(lambda session: session, deadline=200).result()
    engine.close()
