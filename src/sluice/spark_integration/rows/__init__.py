"""Rows that Spark's tasks find and write for a transaction of the user's own process.

`change` deletes and updates, `merge` merges, in one pass over the table (docs/decisions/0020); `work` and `writer` are what they
share. `dataframes` writes a DataFrame's rows. It imports `scan` and `data_source`. Begin with `change`.
"""
