"""Disruption budgets. `prices` has what each move costs, and `account` remembers what was charged.

`left` compares both with the budgets, `admission` charges the moves that fit, and `report` shows what was spent.
"""
