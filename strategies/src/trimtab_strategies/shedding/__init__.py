"""Shedders: one module for each strategy that decides which bundles should leave which brokers."""
