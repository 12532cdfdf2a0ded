"""`trimtab lint`: manifests checked without a cluster."""
