"""Experiments: a simulated cluster to compare strategies, and replays of what the original implementations decided.

Nothing that `trimtab run` needs belongs here. Commands are registered through the entry-point group `trimtab.commands`.
"""
