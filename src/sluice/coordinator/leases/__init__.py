"""Leases, priority after losses, and pins: how clients keep others away from a part of a table, in fair order.

Imports `nodes`, `rules` and `service`. Begin with `granting.py`, the queue in which requests are granted; `guard.py` says which
commits a lease stops.
"""
