"""Connects Trimtab to a Pulsar cluster: a client of its admin REST API, its objects in Kubernetes, its own balancer."""
