"""Disruption budgets: what they have left (`left`), and which moves they allow now (`admission`).

What was charged is remembered in `state.budget_account`, the prices of moves in `state.budget_prices`.
"""
