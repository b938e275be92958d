"""Schemas: Delta's types, Arrow's and SQL's, and data that are fitted to them.

Imports only the root of `storage`. Begin with `schema.py`."""
