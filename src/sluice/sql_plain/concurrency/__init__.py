"""Statements about the order of transactions: blocks, locks, foreseen conflicts, and what the coordinator shows of them.

Imports the modules at the root of `sql_plain`, not `definitions`. Begin with `blocks`.
"""
