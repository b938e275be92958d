"""Names of tables: which there are, what each means, and how they change, each change in one multi.

Imports `nodes` and `service`. Begin with `names.py` (what a name is, and what it means), then `naming.py` (how they change).
"""
