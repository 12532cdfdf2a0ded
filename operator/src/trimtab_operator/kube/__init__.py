"""What Trimtab says to and hears from the Kubernetes API: the client, the stores, records, names, Events, conditions.

Belongs here: everything that knows paths, status codes or watches. May not be here: a decision, or anything of Kopf.
"""
