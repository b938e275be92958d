"""From what an operation wants to a commit: rows and files, what was read, validation, and filing.

Imports `client`. Begin with `change.py`, what an operation wants to commit, and `commit_change.py`, which commits it."""
