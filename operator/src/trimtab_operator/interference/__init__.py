"""Interference: detects who else moves a policy's bundles. The policy stands down if its moves are reverted."""
