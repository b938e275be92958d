"""Admission to the queue: a change becomes an intent, is compared with every commit seen so far, and waits for leases that stop it.

Imports `commit`, `leases` and below. Begin with `change.py`, what an operation wants to commit, and `submission.py`, which
commits it.
"""
