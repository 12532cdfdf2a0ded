"""Splitting: when a bundle should be split, and where. One module per strategy, and two shared ones."""
