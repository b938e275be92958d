"""Data files and deletion vectors: checking, writing and reading rows. Imports all other rooms. Begin with `datafiles.py`."""
