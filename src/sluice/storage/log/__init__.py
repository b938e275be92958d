"""The transaction log: its files, its checkpoints, and the table state that they describe.

Imports `actions`, `schema` and `stores`. Begin with `segment.py`, which finds the files of a version; `snapshot.py` is their result.
"""
