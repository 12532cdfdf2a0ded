"""The Kubernetes API: client, stores, records, names, Events, conditions, the Lease and its fence.

Everything that knows paths, status codes or watches belongs here. Decisions do not, and nothing imports Kopf.
"""
