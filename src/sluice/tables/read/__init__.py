"""Reading: versions of a table, changes between them, and their history.

Imports `client` and `write`. Begin with `table_snapshot.py`.
"""
