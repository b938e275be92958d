"""Writing: turns an operation into the change to commit: rows, files, and what was read.

Imports `client`. Begin with `draft.py`, a table as an open transaction sees it, and `row_operations.py`, which deletes and
updates in it.
"""
