"""Pulsar's own balancer: switched off while a policy acts, put back afterwards."""
