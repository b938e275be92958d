"""Names of tables: which there are, what each means, and how they change, each change in one multi.

Imports `nodes` and `service`. Begin with `names.py` (what a name is), then `meaning.py` (what a name means), `naming.py`
(names given and taken away), `dropped.py` (dropping and bringing back) and `namespaces.py`.
"""
