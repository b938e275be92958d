"""The coordinator's tree: its layout, its records, and who may write which of them.

Imports `service` and `rules`. Begin with `layout.py` (the paths), then `records.py` (what the nodes hold).
"""
