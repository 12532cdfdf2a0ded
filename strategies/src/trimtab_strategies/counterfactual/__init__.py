"""What brokers would have used if bundles had had other owners, and how two ways of balancing compare.

Backtests use this package. It contains no strategy, and decides nothing.
"""
