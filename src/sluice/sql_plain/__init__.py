"""Statements that need no engine: the Python API creates, changes, describes and maintains tables.

Both engines use them: `sql_on_spark` makes DataFrames of the answers, `sql_on_duckdb` Arrow tables. Imports `tables`,
`statements` and below. Begin with `dispatch.py`, a table from kinds of statements to the functions that carry them out.
"""
