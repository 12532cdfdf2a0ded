"""The history of a policy: Parquet files that are also the state of the next cycle."""
