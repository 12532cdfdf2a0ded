"""A real Pulsar cluster as its admin REST shows it: a client with errors to tell apart. Knows nothing of Kubernetes."""
