"""Versions of a table, what changed between them, and who changed it.

Imports `client` and `write`. Begin with `table_snapshot.py`."""
