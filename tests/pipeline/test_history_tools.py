"""Spark, DuckDB and pandas open a history as it is, by the folder of a table; the recipes of the docs work."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kept_histories import AT, LOAD, keep, merge
from trimtab_pipeline.history.dataset import TABLES
from trimtab_pipeline.sources.spark import SparkLoadSources

PAGE = Path(__file__).parents[2] / "docs" / "history.md"
CYCLES = 4


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Two policies, of which an hour is merged and the next is not; and a file that another tool left."""
    for policy in ("messaging/main", "messaging/other"):
        keep(tmp_path, policy, [0, 30, 60, 90])
        merge(tmp_path, policy, 120)
    (next((tmp_path / "history/demand").rglob("hour=16")) / "_half.parquet.tmp").write_bytes(b"half")
    return tmp_path


def recipe(language: str, folder: Path) -> str:
    """The first block of that language on the page, for the history in `folder`."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, f"{PAGE.name} has no recipe in {language}"
    return found[1].replace("trimtab-history", str(folder))


def test_pandas_reads_columns_of_one_policy(kept: Path) -> None:
    names: dict[str, pd.DataFrame] = {}
    exec(recipe("python", kept), names)
    rates = names["rates"]
    assert len(rates) == CYCLES * len(LOAD.bundles)
    assert {"at", "bundle", "rate_in"} <= set(rates.columns)


def test_duckdb_joins_tables_by_time(kept: Path) -> None:
    rows = duckdb.sql(recipe("sql", kept)).fetchall()
    assert len(rows) == len(LOAD.brokers)
    assert {row[0] for row in rows} == set(LOAD.brokers.names)


@pytest.mark.spark
def test_spark_reads_every_table_with_its_partitions(kept: Path, sources: SparkLoadSources) -> None:
    def count(spark: SparkSession) -> dict[str, tuple[int, set[str]]]:
        found = {}
        for name in TABLES:
            folder = kept / "history" / name
            if folder.exists():
                frame = spark.read.parquet(str(folder))
                policies = {row["policy"] for row in frame.select("policy").distinct().collect()}
                found[name] = frame.where("date = '2025-06-15' and hour >= 15").count(), policies
        return found

    counts = sources._engine.run(count, 60.0).result(timeout=60)
    both = {"messaging.main", "messaging.other"}
    assert counts["demand"] == (2 * CYCLES * len(LOAD.bundles), both)
    assert counts["brokers"] == (2 * CYCLES * len(LOAD.brokers), both)
    assert set(counts) == {"brokers", "demand", "facts", "quality", "sketches", "topics"}
    for name, (rows, _) in counts.items():
        assert rows == pq.read_table(kept / "history" / name).num_rows


@pytest.mark.spark
def test_spark_reads_the_rates_as_arrow_does(kept: Path, sources: SparkLoadSources) -> None:
    folder = kept / "history/demand/policy=messaging.main"

    def read(spark: SparkSession) -> pd.DataFrame:
        return spark.read.parquet(str(folder)).selectExpr("unix_timestamp(at) as at", "bundle", "rate_in").toPandas()

    order = ["at", "bundle"]
    found = sources._engine.run(read, 60.0).result(timeout=60).sort_values(order).reset_index(drop=True)
    expected = pd.read_parquet(folder, columns=["at", "bundle", "rate_in"])
    expected["at"] = expected["at"].astype("int64") // 1000
    pd.testing.assert_frame_equal(found, expected.sort_values(order).reset_index(drop=True), check_dtype=False)
    assert found["at"].min() == AT
