"""Statements that no engine has to run: tables are made, changed, described and cared for by the Python API.

Both engines use them: `sql_on_spark` makes DataFrames of the answers, `sql_on_duckdb` Arrow tables.
"""
