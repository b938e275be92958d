"""Schemas: the types of Delta, Arrow and SQL, and fitting data to them. Imports only the root of `storage`. Begin with `schema.py`."""
