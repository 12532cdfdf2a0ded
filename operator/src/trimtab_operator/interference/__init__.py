"""Interference: who else moves the policy's bundles, and when the policy gives way."""
