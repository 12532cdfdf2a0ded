"""Splitting: when a bundle should be divided, and where. One module per strategy, and two shared ones."""
