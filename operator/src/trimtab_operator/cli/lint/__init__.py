"""`trimtab lint`: checks manifests without a cluster."""
