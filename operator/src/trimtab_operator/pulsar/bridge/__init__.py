"""Keeps the resources and a real Pulsar cluster in step, in both directions. Runs only in the process that leads."""
