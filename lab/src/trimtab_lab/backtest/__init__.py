"""Backtests: a policy replayed over recorded load, compared with what happened and with other policies."""
