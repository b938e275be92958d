"""This process as a client of a table: the table's address, its store, its coordinator, its properties.

Imports no other room of `tables`. Begin with `open_table.py`.
"""
