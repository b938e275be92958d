"""Data files and deletion vectors: rows are checked, written and read back.

Imports all other rooms. Begin with `datafiles.py`."""
