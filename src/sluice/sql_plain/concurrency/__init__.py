"""Statements about the order of transactions: blocks, locks, foreseen conflicts, and what the coordinator shows of them.

Imports the modules of `sql_plain` itself; `definitions` knows nothing of it. Begin with `blocks`.
"""
