"""Turns samples into a snapshot: rates, topics as bundles, averages, trust. Each rule is one module."""
