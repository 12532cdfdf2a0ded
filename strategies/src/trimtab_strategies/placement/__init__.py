"""Placements: one module per strategy that says which broker a bundle should go to."""
