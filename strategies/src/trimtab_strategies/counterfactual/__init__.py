"""What brokers would have used with other owners of their bundles, and how two ways of balancing compare.

Backtests and shadow policies use it. It holds no strategy, and decides nothing.
"""
