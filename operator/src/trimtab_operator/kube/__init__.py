"""The Kubernetes API: client, stores, records, names, Events, conditions, the Lease and its fence.

All code that deals with paths, status codes or watches belongs here. Decisions do not. Nothing here imports Kopf.
"""
