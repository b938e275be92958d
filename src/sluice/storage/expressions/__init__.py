"""Expressions of Spark SQL: parsed, typed, rendered as SQL, and evaluated with Arrow.

Imports only the root of `storage`. Begin with `nodes.py`, the syntax tree; `parse.py` makes it of text, `evaluate.py` runs it.
"""
