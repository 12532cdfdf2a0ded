"""Pulsar's own balancer: switched off while a policy acts, and restored afterwards."""
