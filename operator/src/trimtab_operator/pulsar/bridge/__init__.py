"""Synchronizes the resources and a real Pulsar cluster, in both directions. Runs only in the process that leads."""
