"""OBSERVE: Prometheus -> Spark -> `ClusterLoad`, with a history in Parquet that is also the pipeline's state.

`trimtab_pipeline.api` is the one door through which the operator comes in; only this package may load pyspark.
"""
