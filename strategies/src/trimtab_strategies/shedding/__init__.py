"""Shedders: one module per strategy that decides which bundles should leave which brokers."""
