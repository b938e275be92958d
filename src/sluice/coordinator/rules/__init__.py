"""The rules: isolation levels, policies, and what two transactions did to the same files and rows. Pure, without I/O.

Imports no other room of the coordinator. Begin with `conflicts.py`: the rules as a table, in the order in which they are checked.
"""
