"""Splitters: one module per strategy that decides which bundles should be split and where, and two shared modules."""
