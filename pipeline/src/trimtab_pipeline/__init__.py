"""The pipeline: Prometheus -> Spark -> `ClusterLoad`, with a history in Parquet that is also the pipeline's state.

The operator uses it through `trimtab_pipeline.api` and `trimtab_pipeline.factory`. Only this package may load PySpark.
"""
