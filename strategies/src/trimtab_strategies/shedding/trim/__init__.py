"""Trim: Trimtab's own strategy, which replays the last minutes with the current owners of the bundles."""
