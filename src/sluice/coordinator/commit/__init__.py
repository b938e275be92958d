"""Committing transactions: filing, deciding and ratifying them, and finding their outcomes.

Imports `publication`, `leases` and the rooms below. Begin with `table.py`, what a client keeps for one table, then
`driver.py` and `next_step.py`: the life of one transaction.
"""
