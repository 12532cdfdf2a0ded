"""The client of Pulsar's admin REST API: calls, transport, authentication, errors."""
