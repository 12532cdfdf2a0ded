"""Interference: detects who else moves a policy's bundles, and pauses it if another balancer reverts its moves."""
