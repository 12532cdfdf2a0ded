"""`trimtab explain` and `trimtab why-not`: answers from the decision log."""
