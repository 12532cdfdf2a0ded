"""Trim: Trimtab's own strategy, which replays the last minutes with the owners that bundles have now."""
