"""Spark: its settings, its session, and the tasks that run on it."""
