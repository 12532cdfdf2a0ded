"""Placements: one module per strategy that chooses the broker that a bundle should go to."""
