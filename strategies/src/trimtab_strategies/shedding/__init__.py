"""Shedders: one module per strategy that says which bundles should leave which brokers."""
