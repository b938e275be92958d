"""This process as a client of a table: the table's address, its store, its place in the coordinator's tree, its properties.

Imports nothing of the other rooms. Begin with `access.py`."""
