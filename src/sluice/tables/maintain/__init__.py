"""Maintenance, which keeps a table small and fast: compaction, z-order, checkpoints, and the removal of unneeded files.

Imports `client` and `write`. Begin with `compaction.py` and `vacuum.py`.
"""
