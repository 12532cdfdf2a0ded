"""Splitting: when a bundle should be divided, and where. One module per strategy, beside what they share."""
