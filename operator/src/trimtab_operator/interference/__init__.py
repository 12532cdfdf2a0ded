"""Interference: detects who else moves a policy's bundles, and pauses the policy if its moves are reverted."""
