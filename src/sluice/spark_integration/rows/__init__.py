"""Rows that Spark's tasks find and write for a transaction of the user's own process.

It imports `scan` and `data_source`. Begin with `dataframes`.
"""
