"""Committing transactions: filing, deciding and ratifying them, and finding their outcomes.

Imports `publication`, `leases` and the rooms below. Begin with `table.py`, what a client keeps for one table, then
`transactions.py` and `leg.py`: the life of one transaction.
"""
