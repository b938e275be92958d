"""The transaction log: its files, its checkpoints, and the state of a table that they come to.

Imports `actions`, `schema` and `stores`. Begin with `segment.py`, which finds the files of a version; `snapshot.py` is what they say."""
