"""Placements: one module for each strategy that chooses the broker of a bundle."""
