"""Synchronizes Kubernetes objects and a Pulsar cluster, in both directions. Runs only in the process that leads."""
