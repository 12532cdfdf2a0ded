"""The loop of a policy: observe, decide, gate, apply, confirm, report."""
