"""The lab: a simulated world for strategies, and replays of what the original implementations decided.

Nothing that `trimtab run` needs belongs here. Its verbs enter the CLI by the entry-point group `trimtab.commands`.
"""
