"""Leases, reserved turns and pins: what a client holds for others to see, and how requests are granted in fair order.

Imports `nodes`, `rules` and `service`. Begin with `granting.py`, the queue in which requests are granted; `guard.py` says which
commits a lease stops.
"""
