"""Statements about commits beside others: blocks, locks, IF VERSION, EXPLAIN CONFLICT, and what the coordinator knows of them all.

Imports `engine`, `places` and below. Begin with `blocks`.
"""
