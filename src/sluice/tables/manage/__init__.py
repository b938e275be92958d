"""Management of whole tables: creating, attaching, detaching, dropping, recovering and examining them, and their properties.

Imports `client`, `write` and `maintain`. Begin with `creation.py`.
"""
